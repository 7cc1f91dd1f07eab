# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Alignment by Markov chain Monte Carlo
#
# A language model rewrites its answer from a random place; a reward and a coin decide whether the
# rewrite stays. This notebook shows what these steps do, with `qalign_core` and the models that
# come with it. Nothing is downloaded, and the notebook runs in under a minute on a laptop.
#
# `alignment_by_mcmc.ipynb` is this notebook for Jupyter. Its source, `alignment_by_mcmc.py`, is
# plain Python; `python -m notebooks` writes the notebook from it.

# %%
from collections import Counter

from qalign_core import (
    collect,
    load_language_model,
    load_reward_model,
    majority_vote,
    sample_iid,
)
from qalign_core.decide.answers.extraction import extract_number
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import record
from qalign_core.run import Run
from qalign_study.exact.mistakes import MISTAKES, broken
from qalign_study.exact.world import preset
from qalign_study.exact.wrong_reward import Example, outcomes
from qalign_study.export.player import show
from qalign_study.measure.diagnostics import acceptance, agreement, ess

PROMPT = "Leo has 9 ribbons. He buys 3 boxes of 4 ribbons each. How many ribbons does Leo have now?"
RIGHT = "21"

lm = load_language_model("embedded")
rm = load_reward_model("embedded")


def drawn(reward=rm, **settings):
    """The trace of a run, drawn here."""
    run = Run(prompt=PROMPT, reference=RIGHT, pool=0, **settings)
    return parse_trace("".join(item.line for item in collect(record(lm, reward, run))))


# %% [markdown]
# ## 1. One step
#
# A step keeps the first `index` tokens of the current answer, lets the model write the rest,
# scores both texts with the reward model, and draws a number *u*. The rewrite is accepted if *u*
# is below
#
# $$\alpha = \min\left(1, \exp\frac{r(y') - r(y)}{\beta} \cdot \frac{|y|}{|y'|}\right).$$
#
# The second factor is needed because every token is an equally likely place to cut, so each rewrite
# of a short answer is proposed more often than each rewrite of a long one.

# %%
trace = drawn(beta=1.0, steps=48, seed=7)
for step in trace.steps[1:4]:
    print(f"step {step.t}: kept {step.index} of {len(step.current.response)} tokens")
    print("  now     ", f"{step.current.reward:6.2f}", step.current.response.text)
    print("  proposed", f"{step.proposal.reward:6.2f}", step.proposal.response.text)
    print("  ", "accepted" if step.accepted else "rejected")

# %% [markdown]
# `show` displays a trace as a page with a player. Press the space bar there to play it.

# %%
show(trace)

# %% [markdown]
# ## 2. Worse may be right
#
# Some steps accept a text with a *lower* reward. A search for the best text would never do
# that. A sampler must, or it would stay forever at the first good text.

# %%
worse = [s for s in trace.steps if s.accepted and s.proposal.reward < s.current.reward]
print(f"{len(worse)} of {len(trace.steps) - 1} steps went down and were accepted")

# %% [markdown]
# ## 3. β
#
# With a small β, the reward decides, and few rewrites are good enough. With a large β, the model
# decides, and nearly everything is accepted. Guess the two rates before you run the cell.

# %%
for beta in (0.1, 1.0, 10.0):
    steps = drawn(beta=beta, steps=48, seed=7).steps
    rewards = [step.state.reward for step in steps]
    rate = acceptance(steps).changed.value
    mean = sum(rewards) / len(rewards)
    print(f"beta {beta:4}: {rate:.0%} of changed proposals accepted, mean reward {mean:6.2f}")

# %% [markdown]
# ## 4. From states to an answer
#
# The chain's states are samples, so the answer is their vote. A text that is hard to beat stays
# for a long time and is counted at every step. This is how the reward affects the vote.

# %%
states = trace.states
pool = collect(sample_iid(lm, rm, PROMPT, n=48, seed=7))
for name, texts in (("chain", states), ("model alone", pool)):
    votes = Counter(extract_number(text.response.text) for text in texts)
    print(f"{name:12}", majority_vote(texts, extract_number).answer, votes.most_common(4))

# %% [markdown]
# ## 5. Why best-of-n falls
#
# In a constructed example everything can be computed. Answer A is right, B is popular and wrong,
# and C is rare and overrated by the reward. More samples make best-of-n likelier to find C.

# %%
for outcome in outcomes(Example(hack_mass=0.01, hack_reward=3.0, beta=1.0), samples=(1, 16, 128)):
    right, _, hacked = outcome.answers
    print(f"{outcome.method:14} n = {outcome.n:3}: right {right:.0%}, hacked {hacked:.0%}")

# %% [markdown]
# ## 6. Break the rule
#
# This language model is so small that all its responses can be listed. It shows what each part of
# the rule is for: how far from the target a wrong rule ends.

# %%
world = preset()
for name, rule in MISTAKES.items():
    ends = broken(world, 1.0, rule)
    print(f"{name:28} ends {ends.distance:.3f} away from the target")

# %% [markdown]
# ## 7. Can I trust it?
#
# Several chains that agree are a better sign than one long chain, because a stuck chain looks calm.
# Split R-hat compares the chains. The effective sample size is the number of independent texts
# that they are worth.

# %%
four = drawn(beta=1.0, steps=64, seed=7, chains=4)
rewards = [[step.state.reward for step in steps] for steps in four.chains.values()]
found = agreement(rewards)
print(f"split R-hat {found} (mixed below {found.limit:.3f}): mixed = {found.is_mixed}")
print(f"{sum(map(len, rewards))} states are worth {ess(rewards):.0f} independent ones")

# %% [markdown]
# ## 8. A reward that you can judge yourself
#
# `contains:WORD`, `length:N`, `plain` and `mood` read the text alone, so it is clear what they
# reward and what they cannot see. This cell rewards about ten words. Does the answer survive?

# %%
short = drawn(load_reward_model("length:10"), beta=0.5, steps=48, seed=7)
last = short.steps[-1].state
print(len(last.response.text.split()), "words:", last.response.text)
