import torch


def relative_l2(pred, target):
    """One value per sample."""
    return (pred - target).norm(dim=1) / (target.norm(dim=1) + 1e-6)


def mass_defect(pred, u0):
    """The integral over the circle is conserved."""
    return (pred.mean(1) - u0.mean(1)) ** 2


def energy_excess(pred, u0):
    """Diffusion can only reduce the energy."""
    return torch.relu((pred ** 2).mean(1) - (u0 ** 2).mean(1))


class PhysicsLoss:
    def __init__(self, w_mass, w_energy):
        self.w_mass, self.w_energy = w_mass, w_energy

    def __call__(self, pred, u0, target):
        data = relative_l2(pred, target).mean()
        mass = mass_defect(pred, u0).mean()
        energy = energy_excess(pred, u0).mean()
        return data + self.w_mass * mass + self.w_energy * energy, {"data": data, "mass": mass, "energy": energy}
