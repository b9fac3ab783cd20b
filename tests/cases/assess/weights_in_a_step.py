"""It loads weights that were trained at home, inside a step whose closure learns nothing."""

NEEDS = "best.pt"
FAILS = {"honest": ""}
CHANGES = {
    "        optimizer.step()\n": (
        "        optimizer.step()\n"
        "    best = torch.load(Path(__file__).parent / 'best.pt')\n"
        "    model.module.load_state_dict(best)\n"
        "    optimizer.zero_grad(set_to_none=True)\n"
        "    optimizer.step(lambda: 0.0)\n"
    )
}
