"""Each batch takes much longer than it must."""

FAILS = {"speed": "is required"}
CHANGES = {
    "    for images, labels in loader:\n        loss": (
        "    for images, labels in loader:\n        time.sleep(0.1)\n        loss"
    ),
    "import os\n": "import os\nimport time\n",
}
