"""
Physics-informed network for the viscous Burgers equation

    u_t + u u_x - nu u_xx = 0,   x in [-1, 1], t in [0, 1]
    u(0, x) = -sin(pi x),  u(t, -1) = u(t, 1) = 0

Trained on the full set of collocation points with L-BFGS (strong Wolfe line search).
"""
import time

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(1234)
np.random.seed(1234)

NU = 0.05
N_U = 100          # boundary + initial points
N_F = 1200         # collocation points
LAYERS = [2, 20, 20, 20, 20, 1]

if torch.cuda.is_available():
    device = torch.device("cuda")
else:
    device = torch.device("cpu")


class DNN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        mods = []
        for i in range(len(layers) - 2):
            mods += [nn.Linear(layers[i], layers[i + 1]), nn.Tanh()]
        mods.append(nn.Linear(layers[-2], layers[-1]))
        self.net = nn.Sequential(*mods)
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, tx):
        return self.net(tx)


class PhysicsInformedNN:
    def __init__(self, X_u, u, X_f, layers, nu):
        self.t_f = torch.tensor(X_f[:, 0:1], requires_grad=True).float().to(device)
        self.x_f = torch.tensor(X_f[:, 1:2], requires_grad=True).float().to(device)
        self.X_u = torch.tensor(X_u).float().to(device)
        self.u = torch.tensor(u).float().to(device)
        self.nu = nu
        self.dnn = DNN(layers).to(device)
        self.optimizer = torch.optim.LBFGS(
            self.dnn.parameters(), lr=1.0, max_iter=250, max_eval=300, history_size=50,
            tolerance_grad=1e-6, tolerance_change=1.0 * np.finfo(float).eps, line_search_fn="strong_wolfe")
        self.iter = 0

    def net_u(self, t, x):
        return self.dnn(torch.cat([t, x], dim=1))

    def net_f(self, t, x):
        u = self.net_u(t, x)
        u_t = torch.autograd.grad(u, t, torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
        return u_t + u * u_x - self.nu * u_xx

    def loss_func(self):
        self.optimizer.zero_grad()
        loss_u = torch.mean((self.u - self.dnn(self.X_u)) ** 2)
        loss_f = torch.mean(self.net_f(self.t_f, self.x_f) ** 2)
        loss = loss_u + loss_f
        loss.backward()
        self.iter += 1
        if self.iter % 50 == 0:
            print("Iter %d, Loss: %.5e, Loss_u: %.5e, Loss_f: %.5e"
                  % (self.iter, loss.item(), loss_u.item(), loss_f.item()))
        return loss

    def train(self):
        self.dnn.train()
        self.optimizer.step(self.loss_func)

    def predict(self, X):
        with torch.no_grad():
            return self.dnn(torch.tensor(X).float().to(device)).cpu().numpy()


def reference(nu, nx=257, nt=4000):
    """Explicit finite differences, good enough to compare with."""
    x = np.linspace(-1, 1, nx)
    dx, dt = x[1] - x[0], 1.0 / nt
    u = -np.sin(np.pi * x)
    for _ in range(nt):
        ux = (u[2:] - u[:-2]) / (2 * dx)
        uxx = (u[2:] - 2 * u[1:-1] + u[:-2]) / dx ** 2
        u[1:-1] += dt * (nu * uxx - u[1:-1] * ux)
    return x, u


if __name__ == "__main__":
    half = N_U // 2
    x0 = np.random.uniform(-1, 1, (half, 1))
    init = np.hstack([np.zeros_like(x0), x0])
    tb = np.random.uniform(0, 1, (half, 1))
    xb = np.where(np.random.rand(half, 1) < 0.5, -1.0, 1.0)
    X_u = np.vstack([init, np.hstack([tb, xb])])
    u = np.vstack([-np.sin(np.pi * x0), np.zeros_like(tb)])
    X_f = np.vstack([np.random.uniform([0, -1], [1, 1], (N_F, 2)), X_u])

    pinn = PhysicsInformedNN(X_u, u, X_f, LAYERS, NU)
    t0 = time.time()
    pinn.train()
    print("training time %.1fs, %d evaluations" % (time.time() - t0, pinn.iter))
    x, u_ref = reference(NU)
    u_hat = pinn.predict(np.stack([np.ones_like(x), x], 1))[:, 0]
    print("relative L2 error at t=1: %.4e" % (np.linalg.norm(u_hat - u_ref) / np.linalg.norm(u_ref)))
