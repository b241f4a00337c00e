"""Study W15: what a publisher, its caravans and its subscribers carry, and how soon."""
