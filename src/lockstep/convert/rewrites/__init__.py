"""One rewrite per file: each changes the draft where its idea applies, and reports what it did."""
