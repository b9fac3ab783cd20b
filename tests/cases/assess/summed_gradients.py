"""Gradients are added over the ranks by hand, and not divided."""

FAILS = {"gradient": "the right direction and 2 times the length"}
CHANGES = {
    "DistributedDataParallel(\n        build_model().to(device), "
    "device_ids=[device] if on_gpu else None\n    )": "build_model().to(device)",
    "validate(model.module,": "validate(model,",
    "model.module.state_dict()": "model.state_dict()",
    "        loss.backward()\n": (
        "        loss.backward()\n"
        "        for parameter in model.parameters():\n"
        "            dist.all_reduce(parameter.grad)\n"
    ),
}
