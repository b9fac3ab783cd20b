from dataclasses import dataclass, asdict


@dataclass
class Config:
    # data
    image_size: int = 16
    n_images: int = 1024
    # diffusion
    timesteps: int = 200
    beta_schedule: str = "cosine"
    # model
    base_channels: int = 16
    time_dim: int = 64
    # optimisation
    train_steps: int = 120
    batch_size: int = 32
    gradient_accumulate_every: int = 2
    lr: float = 1e-3
    ema_decay: float = 0.98
    ema_update_every: int = 2
    max_grad_norm: float = 1.0
    # misc
    amp: bool = True
    save_and_sample_every: int = 60
    results_folder: str = "./results"
    seed: int = 42

    def dict(self):
        return asdict(self)
