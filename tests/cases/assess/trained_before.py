"""It starts from weights that were trained at home."""

NEEDS = "best.pt"
FAILS = {"honest": "it was trained before"}
CHANGES = {
    "    model = DistributedDataParallel(\n        build_model().to(device)": (
        "    net = build_model()\n"
        "    net.load_state_dict(torch.load(Path(__file__).parent / 'best.pt'))\n"
        "    model = DistributedDataParallel(\n        net.to(device)"
    )
}
