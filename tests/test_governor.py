"""One thread or two, whichever is faster now, and never another bit."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
import torch
from tiny_models import save

from qalign_core.models.local import governor as governors
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.models.local.governor import LONGEST_WAIT, SLOW, Governor
from qalign_core.models.local.llama_net import Int8LlamaNet
from qalign_core.run import Sampling


class Machine:
    """A machine on which a layer takes `costs[threads]` seconds, and one's own clock."""

    def __init__(self, monkeypatch, cores=2):
        monkeypatch.setattr(governors, "n_cores", lambda: cores)
        self.time, self.costs, self.used = 0.0, {1: 1.0, 2: 0.6}, []
        self.governor = Governor(clock=lambda: self.time)

    def run(self, steps, layers=30):
        """The seconds of some steps; `used` holds the threads of each layer of each."""
        start = self.time
        for _ in range(steps):
            self.used.append([])
            for _ in self.governor.spread(range(layers)):
                self.used[-1].append(torch.get_num_threads())
                self.time += self.costs[self.used[-1][-1]]
        return self.time - start


@pytest.fixture(autouse=True)
def one_thread():
    """As in the thread that owns a model."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    assert torch.get_num_threads() == 1, "what follows the layers has one thread"
    torch.set_num_threads(before)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_two_threads_stay_where_they_are_faster(machine):
    machine.run(500)
    assert machine.governor.n_threads == 2
    assert machine.run(1000) < 1.04 * 1000 * 30 * 0.6


@pytest.mark.parametrize("double", [0.95, 1.0, 1.4, SLOW - 0.1])
def test_one_thread_stays_where_two_gain_little_or_lose(machine, double):
    machine.costs[2] = double
    machine.run(500)
    assert machine.governor.n_threads == 1
    assert machine.run(1024) < 1.005 * 1024 * 30


@pytest.mark.parametrize("double", [10.0, 35.0])
def test_beside_a_busy_program_two_threads_cost_two_layers_of_256_steps(machine, double):
    machine.costs[2] = double
    machine.run(600)
    n = 2 * LONGEST_WAIT[1]
    assert machine.run(n) <= n * 30 + 2 * 2 * (double - 1)


def test_two_threads_end_after_two_slow_layers(machine):
    machine.run(100)
    assert machine.governor.n_threads == 2
    machine.costs[2] = 35.0
    seconds = machine.run(1)
    assert machine.used[-1] == [1, 2, 2] + [1] * 27
    assert seconds == 28 + 2 * 35
    assert machine.governor.n_threads == 1


def test_one_slow_layer_changes_nothing(machine):
    machine.run(100)
    costs = iter([1.0, 99.0, *[0.6] * 28])
    for _ in machine.governor.spread(range(30)):
        machine.time += next(costs)
    assert machine.governor.n_threads == 2


def test_two_threads_that_become_a_little_slower_than_one_end_within_33_steps(machine):
    machine.run(100)
    machine.costs[2] = 1.2
    machine.run(LONGEST_WAIT[2] + 1)
    assert machine.governor.n_threads == 1


def test_two_threads_come_back_when_the_other_program_ends(machine):
    machine.costs[2] = 35.0
    machine.run(1000)
    machine.costs[2] = 0.6
    machine.run(LONGEST_WAIT[1] + 1)
    assert machine.governor.n_threads == 2


def test_tries_become_rare_while_one_thread_wins(machine):
    machine.costs[2] = 2.0
    machine.run(1000)
    tries = [at for at, used in enumerate(machine.used) if 2 in used]
    gaps = [b - a - 1 for a, b in itertools.pairwise(tries)]
    assert gaps == [4, 16, 64, 256, 256, 256]


@pytest.mark.parametrize(("cores", "threads", "layers"), [(1, 1, 30), (2, 2, 30), (2, 1, 3)])
def test_a_single_core_a_chosen_number_and_a_net_of_few_layers_are_left_alone(
    monkeypatch, cores, threads, layers
):
    machine = Machine(monkeypatch, cores)
    torch.set_num_threads(threads)
    machine.run(50, layers)
    assert {n for used in machine.used for n in used} == {threads}
    torch.set_num_threads(1)


def test_an_error_in_a_layer_leaves_one_thread(machine):
    machine.run(100)
    with pytest.raises(ZeroDivisionError):
        for i in machine.governor.spread(range(30)):
            _ = 1 // (5 - i)
    assert torch.get_num_threads() == 1


class Restless(Governor):
    """Changes the number of threads in every layer, and after every step."""

    def __init__(self):
        super().__init__()
        self.used = []

    def spread(self, layers):
        self.n_threads = 3 - self.n_threads
        for i, layer in enumerate(layers):
            self.used.append(1 + (i + self.n_threads) % 2)
            torch.set_num_threads(self.used[-1])
            yield layer
        torch.set_num_threads(1)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_tokens_and_log_probs_have_the_same_bits_whatever_the_threads(tmp_path, kind):
    wide = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 4}
    folder = save(tmp_path, kind, **wide)
    outcomes, states = [], []
    for governor in (None, Restless()):
        sampling = Sampling(max_new_tokens=24)
        lm = HFLanguageModel.from_pretrained(
            folder, dtype="int8", device="cpu", rows=8, window=128, sampling=sampling
        )
        net = lm.engine.net
        assert type(net) is Int8LlamaNet
        if governor is not None:
            net.governor = governor
        ids = lm.encode("Why is the sky blue, and why is it red in the evening?")

        async def draw(lm=lm, ids=ids):
            responses = await asyncio.gather(*(lm.extend(ids, (), seed=s) for s in range(8)))
            again = await lm.extend(ids, responses[0].tokens[:5], seed=9)
            return [*responses, again], await lm.score_tokens(ids, responses[1].tokens)

        outcomes.append(asyncio.run(draw()))
        lm.close()
        with torch.inference_mode():
            read = net.read_in(0, range(20, 84), 0, needed=64).clone()
            logits = net.decode(np.arange(8) * 7, np.full(8, 64)).clone()
            states.append((read, logits, net.copy_out(0, 0, 65).clone()))
    assert set(governor.used) == {1, 2}
    assert outcomes[0] == outcomes[1]
    assert all(torch.equal(one, other) for one, other in zip(*states, strict=True))


def test_a_net_whose_bits_depend_on_the_threads_has_no_governor(tmp_path):
    lm = HFLanguageModel.from_pretrained(save(tmp_path, "llama"), dtype="float32", device="cpu")
    assert not hasattr(lm.engine.net, "governor")
    lm.close()
