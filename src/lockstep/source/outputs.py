"""Names of calls that save, print or log."""

from __future__ import annotations

import re

SAVES = "torch.save", "safetensors.torch.save_file"
NOTES = re.compile(
    r"^(print|pprint|log|info|debug|warning|error|echo|add_scalars?|log_metrics?|"
    r"log_dict|print_\w+|log_\w+|report|set_postfix|set_description)$",
    re.I,
)
"""Calls that print or log, by their last names."""
