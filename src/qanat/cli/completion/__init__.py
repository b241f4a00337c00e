"""What a shell asks to complete a command line of ours, as scripts made from the commands' own parsers."""
