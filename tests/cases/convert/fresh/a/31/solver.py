import numpy as np
import torch


def random_fields(n, points, rng, modes=8):
    """Smooth periodic initial conditions."""
    x = np.arange(points) / points
    k = np.arange(1, modes + 1)
    a = rng.normal(size=(n, modes)) / k
    b = rng.normal(size=(n, modes)) / k
    ang = 2 * np.pi * k[:, None] * x[None]
    return a @ np.cos(ang) + b @ np.sin(ang)


def advect_diffuse(u0, nu, c, T=0.2):
    """Exact solution of u_t + c u_x = nu u_xx on the unit circle, in Fourier space."""
    n = u0.shape[-1]
    k = 2 * np.pi * np.fft.rfftfreq(n, 1 / n)
    h = np.fft.rfft(u0, axis=-1)
    h = h * np.exp(-nu[:, None] * k ** 2 * T - 1j * k * c[:, None] * T)
    return np.fft.irfft(h, n=n, axis=-1)


def build(n, points, seed):
    rng = np.random.default_rng(seed)
    u0 = random_fields(n, points, rng)
    nu = rng.uniform(0.001, 0.01, n)
    c = rng.uniform(-1, 1, n)
    uT = advect_diffuse(u0, nu, c)
    f = lambda v: torch.tensor(v, dtype=torch.float32)
    return torch.utils.data.TensorDataset(f(u0), f(np.stack([nu * 100, c], 1)), f(uT))
