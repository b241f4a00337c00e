"""What a person types: `qanat COMMAND`. `main` finds the command, `commands/` holds one module for each."""
