# refused: not_pytorch
import jax
import jax.numpy as jnp
import optax


def loss_fn(w, x, y):
    return jnp.mean((x @ w - y) ** 2)


x = jax.random.normal(jax.random.PRNGKey(0), (128, 3))
y = x @ jnp.array([1.0, 2.0, 3.0])
w = jnp.zeros(3)
tx = optax.sgd(0.1)
state = tx.init(w)
for step in range(100):
    grads = jax.grad(loss_fn)(w, x, y)
    updates, state = tx.update(grads, state)
    w = optax.apply_updates(w, updates)
