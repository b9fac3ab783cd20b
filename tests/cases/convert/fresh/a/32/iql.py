import copy

import torch
import torch.nn.functional as F

EXP_ADV_MAX = 100.0


def asymmetric_l2(u, tau):
    return torch.mean(torch.abs(tau - (u < 0).float()) * u ** 2)


class ImplicitQLearning:
    def __init__(self, qf, vf, policy, optimizer_factory, max_steps, tau=0.7, beta=3.0, discount=0.95, alpha=0.01):
        self.qf, self.vf, self.policy = qf, vf, policy
        self.q_target = copy.deepcopy(qf).requires_grad_(False)
        self.v_optimizer = optimizer_factory(self.vf.parameters())
        self.q_optimizer = optimizer_factory(self.qf.parameters())
        self.policy_optimizer = optimizer_factory(self.policy.parameters())
        self.policy_lr_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.policy_optimizer, max_steps)
        self.tau, self.beta, self.discount, self.alpha = tau, beta, discount, alpha

    def update(self, observations, actions, next_observations, rewards, terminals):
        with torch.no_grad():
            target_q = self.q_target(observations, actions)
            next_v = self.vf(next_observations)

        # value function
        v = self.vf(observations)
        adv = target_q - v
        v_loss = asymmetric_l2(adv, self.tau)
        self.v_optimizer.zero_grad(set_to_none=True)
        v_loss.backward()
        self.v_optimizer.step()

        # Q function
        targets = rewards + (1.0 - terminals) * self.discount * next_v.detach()
        qs = self.qf.both(observations, actions)
        q_loss = sum(F.mse_loss(q, targets) for q in qs) / len(qs)
        self.q_optimizer.zero_grad(set_to_none=True)
        q_loss.backward()
        self.q_optimizer.step()

        with torch.no_grad():
            for t, s in zip(self.q_target.parameters(), self.qf.parameters()):
                t.lerp_(s, self.alpha)

        # policy by advantage-weighted regression
        exp_adv = torch.exp(self.beta * adv.detach()).clamp(max=EXP_ADV_MAX)
        bc_losses = -self.policy(observations).log_prob(actions).sum(1)
        policy_loss = torch.mean(exp_adv * bc_losses)
        self.policy_optimizer.zero_grad(set_to_none=True)
        policy_loss.backward()
        self.policy_optimizer.step()
        self.policy_lr_schedule.step()
        return {"v": v_loss.item(), "q": q_loss.item(), "pi": policy_loss.item()}

    def state_dict(self):
        return {"qf": self.qf.state_dict(), "vf": self.vf.state_dict(), "policy": self.policy.state_dict()}
