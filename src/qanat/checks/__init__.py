"""What the simulator's scenarios are made of: kits, hosts around machines, and checkers of what is
promised."""
