"""Reading a user's script: its syntax tree, its names, and where values come from."""
