"""Stand-ins for small libraries. Scripts import each under the name of its file."""
