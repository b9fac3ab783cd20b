CFG = {
    "data": {"name": "svhn", "root": "/tmp/torch_data", "fetch": True},
    "optim": {"lr": 0.02, "momentum": 0.9},
    "epochs": 25,
    "batch_per_gpu": 96,
    "save_to": "svhn.pt",
}
