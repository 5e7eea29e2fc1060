"""Agents that learn by policy gradients or Q-learning, rightly or with a fault; their skill tells what they became."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from environments import ENVS, Env, Policy, play, skill
from logs import Log
from networks import adam, greedy, learn, mlp, sampled, set_rate
from settings import Params, outcome
from torch import nn
from torch.nn import functional

_MEMORY = 20000
"""So many transitions a replay holds."""


def train_agent(run: Params, log: Log) -> str:
    """Train; healthy, sick or neither by the skill of the final policy."""
    torch.manual_seed(run["seed"])
    train = q_learning if run["algorithm"] == "dqn" else policy_gradient
    nets = None
    if run["hard"] == "warm":  # goes on from a policy that is already good
        nets = train(run | {"hard": ""}, Log({}, run))
    net = train(run, log, nets)[0]
    act = greedy(net) if run["algorithm"] == "dqn" else sampled(net, np.random.default_rng(4))
    run["measured"] = round(skill(run["task"], act), 3)
    return outcome(run, healthy=run["measured"] >= 0.8, sick=run["measured"] < 0.5)


def _trained_reward(run: Params, env: Env, reward: np.ndarray) -> np.ndarray:
    """What of a reward reaches training."""
    return reward / env.unit * (run["fault"] != "zero_reward")


def _evaluate(run: Params, log: Log, act: Policy, number: int, step: int) -> None:
    """Log the mean of ten episodes, as often in a run as its plan says."""
    if run["evals"] and number * run["evals"] // run["iterations"] > (number - 1) * run["evals"] // run["iterations"]:
        log.write(step, eval=play(run["task"], act, 10, step) * run["reward_scale"])


class _Steps(NamedTuple):
    """Steps of all copies of an environment, one row per step."""

    seen: np.ndarray
    action: np.ndarray
    after: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    over: np.ndarray


def policy_gradient(run: Params, log: Log, nets: list[nn.Module] | None = None) -> list[nn.Module]:
    """REINFORCE with a baseline (long batches, no bootstrap within) or an actor-critic (short ones, GAE, entropy)."""
    rng = np.random.default_rng(run["seed"])
    env = ENVS[run["task"]](16, rng)
    nets = nets or [mlp(env.size, run["hidden"], env.actions), mlp(env.size, run["hidden"], 1)]
    (actor, critic), optimizer = nets, adam(run, nets)
    act = sampled(actor, rng)
    for number in range(1, run["iterations"] + 1):
        rate = set_rate(optimizer, run, number / run["iterations"])
        steps = _rollout(run, log, env, act, (number - 1) * run["rollout"])
        values = critic(torch.from_numpy(steps.seen)).squeeze(-1)
        advantage = _advantage(run, steps, critic, values.detach())
        target = torch.from_numpy(advantage.astype(np.float32)) + values.detach()
        if run["fault"] == "shuffled":
            advantage = rng.permutation(advantage.ravel()).reshape(advantage.shape)
        policy, entropy = _policy_loss(run, actor, steps, advantage)
        value = functional.mse_loss(values, target)
        loss = policy + 0.5 * value - run["ent_coef"] * entropy
        norm = learn(optimizer, nets, loss, run["clip"])
        step = number * run["rollout"] * 16
        shown = {"loss": loss.item(), "policy": policy.item(), "value": value.item(), "entropy": entropy.item()}
        shown["explained"] = 1.0 - float((target - values.detach()).var() / target.var().clamp_min(1e-8))
        log.iteration(step, number, **shown, grad=norm, lr=rate)
        _evaluate(run, log, act, number, step)
    return nets


def _rollout(run: Params, log: Log, env: Env, act: Policy, earlier: int) -> _Steps:
    """So many steps as one iteration learns from, after so many earlier ones."""
    steps = []
    for tick in range(earlier + 1, earlier + run["rollout"] + 1):
        seen = env.see()
        action = act(seen)
        after, reward, ended, over = env.step(action)
        steps.append((seen, action, after, _trained_reward(run, env, reward), ended, over))
        log.episodes(tick * 16, env.done)
    return _Steps(*(np.stack(part) for part in zip(*steps, strict=True)))


@torch.no_grad()
def _advantage(run: Params, steps: _Steps, critic: nn.Module, values: torch.Tensor) -> np.ndarray:
    """Generalised advantage estimation (Schulman et al., 2016)."""
    later = critic(torch.from_numpy(steps.after)).squeeze(-1).numpy() * ~steps.ended
    delta = steps.reward + run["gamma"] * later - values.numpy()
    advantage, carried = np.zeros_like(delta), np.zeros(16)
    for tick in reversed(range(len(delta))):
        carried = delta[tick] + run["gamma"] * run["lambda"] * ~steps.over[tick] * carried
        advantage[tick] = carried
    return advantage


def _policy_loss(
    run: Params, actor: nn.Module, steps: _Steps, advantage: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss that raises the chances of what went better than expected, and the policy's entropy."""
    weight = torch.from_numpy(((advantage - advantage.mean()) / (advantage.std() + 1e-8)).astype(np.float32))
    chances = actor(torch.from_numpy(steps.seen)).log_softmax(-1)
    entropy = -(chances.exp() * chances).sum(-1).mean()
    loss = -(chances.gather(-1, torch.from_numpy(steps.action)[..., None]).squeeze(-1) * weight).mean()
    return -loss if run["fault"] == "wrong_sign" else loss, entropy


def q_learning(run: Params, log: Log, nets: list[nn.Module] | None = None) -> list[nn.Module]:
    """DQN: a replay, a target network, one batch of 64 per step of eight copies; 16 of these make an iteration."""
    rng = np.random.default_rng(run["seed"])
    env = ENVS[run["task"]](8, rng)
    nets = nets or [mlp(env.size, run["hidden"], env.actions, nn.ReLU)]
    net, optimizer = nets[0], adam(run, nets)
    target, act = copy.deepcopy(net), greedy(net)
    memory = [np.zeros((_MEMORY, env.size), np.float32) for _ in range(2)]
    memory += [np.zeros(_MEMORY, kind) for kind in (np.int64, np.float32, np.float32)]
    losses, ticks, rate = [(0.0, 0.0, 0.0)], run["iterations"] * 16, run["lr"]
    for tick in range(ticks):
        step = tick * 8 + 8
        _remember(run, env, memory, step, _explore(run, env, act, tick / ticks))
        log.episodes(step, env.done)
        if tick > ticks * (0.35 if run["hard"] == "plateau" else 0.02):
            rate = set_rate(optimizer, run, tick / ticks)
            picked = rng.integers(0, min(_MEMORY, step), 64)
            losses.append(_q_step(run, optimizer, net, target, [torch.from_numpy(part[picked]) for part in memory]))
        if tick % run["target_every"] == 0 and run["fault"] != "no_target":
            target.load_state_dict(net.state_dict())
        if tick % 16 == 15:
            loss, norm, value = np.mean(losses[-16:], axis=0)
            log.iteration(step, tick // 16 + 1, loss=loss, grad=norm, value=value, lr=rate)
            _evaluate(run, log, act, tick // 16 + 1, step)
    return nets


def _explore(run: Params, env: Env, act: Policy, share: float) -> np.ndarray:
    """Actions for what is seen, some of them random."""
    rolls = env.rng.random(8) < _explored(run, share)
    return np.where(rolls, env.rng.integers(0, env.actions, 8), act(env.see()))


def _explored(run: Params, share: float) -> float:
    """How many of the choices are random when this share of the run is over."""
    if run["hard"] == "dip" and 0.5 < share < 0.65:  # exploration once more, half-way
        return 0.7
    if run["hard"] == "warm":
        return float(run["eps_end"])
    start = 0.35 if run["hard"] == "plateau" else 0.0  # nothing is learned, and all is random, until then
    return max(run["eps_end"], 1.0 - max(0.0, share - start) / run["eps_share"])


def _remember(run: Params, env: Env, memory: list[np.ndarray], step: int, action: np.ndarray) -> None:
    """Act, and put what came of it in the place of the oldest transitions."""
    seen = env.see()
    after, reward, ended, _ = env.step(action)
    reward = _trained_reward(run, env, -reward if run["fault"] == "wrong_sign" else reward)
    place = np.arange(step - 8, step) % _MEMORY
    for part, new in zip(memory, (seen, after, action, reward, ended), strict=True):
        part[place] = new


def _q_step(
    run: Params, optimizer: torch.optim.Adam, net: nn.Module, target: nn.Module, batch: list[torch.Tensor]
) -> tuple[float, float, float]:
    """One step on a batch of the replay: the loss, the gradient's norm and the mean value."""
    seen, after, action, reward, ended = batch
    with torch.no_grad():
        wanted = reward + run["gamma"] * (1 - ended) * target(after).max(1).values
    value = net(seen).gather(1, action[:, None]).squeeze(1)
    loss = functional.smooth_l1_loss(value, wanted)
    return loss.item(), learn(optimizer, [net], loss, run["clip"]), float(value.detach().mean())
