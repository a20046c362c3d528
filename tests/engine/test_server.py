"""One round: who takes part, at what rate, what travels, what is kept."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import SIZES, make_spec, play
from toy import Played

from fedbench.channels.channel import Channel, Delivery
from fedbench.channels.make_channel import make_channel
from fedbench.config.entries import Training
from fedbench.config.reading import parse_entry
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.clients import Trained
from fedbench.engine.server import Server, lr_factor, sample_cohort
from fedbench.engine.state import FederationState
from fedbench.methods.method import LocalResult, Method
from fedbench.randomness import stream
from fedbench.tree import weighted_mean


@pytest.mark.parametrize(
    ("clients", "participation", "size"),
    [(100, 0.1, 10), (6, 0.67, 4), (7, 1.0, 7), (5, 0.01, 1), (1, 0.1, 1), (100, 0.29, 29)],
)
def test_cohort(clients, participation, size):
    cohorts = [sample_cohort(3, number, clients, participation) for number in range(1, 60)]
    for cohort in cohorts:
        assert len(cohort) == len(set(cohort)) == size
        assert cohort == sorted(cohort)
        assert set(cohort) <= set(range(clients))
        assert all(type(client) is int for client in cohort)
    assert cohorts == [sample_cohort(3, number, clients, participation) for number in range(1, 60)]
    if size < clients:
        assert cohorts != [sample_cohort(4, number, clients, participation) for number in range(1, 60)]
        assert len({tuple(cohort) for cohort in cohorts}) > 1


def test_every_client_is_as_likely():
    counts = np.zeros(20)
    for number in range(2000):
        counts[sample_cohort(0, number, 20, 0.25)] += 1
    # binomial(2000, 1/4): mean 500, standard deviation 19.4
    assert abs(counts - 500).max() < 5 * 19.4


def test_lr_factor():
    assert [lr_factor(Training(rounds=4), number) for number in (1, 4)] == [1.0, 1.0]
    cosine = Training(rounds=4, schedule="cosine")
    halves = [1.0, 0.5 + 0.25 * 2**0.5, 0.5, 0.5 - 0.25 * 2**0.5]
    assert [lr_factor(cosine, number) for number in (1, 2, 3, 4)] == pytest.approx(halves)
    assert lr_factor(cosine, 5) == pytest.approx(0, abs=1e-15), "the round after the last would be at zero"


class Adds(Method):
    """Shared and private leaves of one tensor each; what training does is up to the test."""

    def build_task(self, classifier):
        return None


class FakeTrainer:
    """Client c adds ``gain(round, c)`` [100] to the shared leaf and one to its own counter."""

    def __init__(self, method, gain, sizes=(5, 5, 5)):
        self.method, self.training, self.seed, self.gain = method, method.training, 0, gain
        self.population = SimpleNamespace(
            train_samples=[np.arange(size) for size in sizes], device=torch.device("cpu"), clients=len(sizes)
        )
        self.chunks = []

    def steps(self, client):
        return len(self.population.train_samples[client])

    def train(self, clients, received, private, number, factor):
        self.chunks.append(list(clients))
        gains = torch.stack([self.gain(number, client) for client in clients])
        trained = {"x": received["x"] + gains, "count": private["count"] + 1}
        result = LocalResult(received, trained, torch.ones(len(clients)), factor)
        return Trained(result, torch.tensor([float(client) for client in clients]), {})


def positions(*chosen):
    gain = torch.zeros(100)
    gain[list(chosen)] = 1.0
    return gain


COHORTS = {1: [0, 1], 2: [1, 2], 3: [0, 2], 4: [0, 2]}


def drawn(seed, number, clients, participation):
    """Rounds 1 to 4 have these cohorts."""
    return COHORTS[number]


def everyone(seed, number, clients, participation):
    return list(range(clients))


def make_server(trainer, channel=None, chunk=8, sampler=drawn, held_out=()):
    shared, lines = {"x": torch.zeros(100)}, []
    channel = channel or make_channel(parse_entry("channels", "dense", {"codec": "dense"}), shared)
    start = {"count": torch.tensor(0.0)}
    server = Server(trainer, channel, Chunk(chunk, lines.append), lambda client: start, held_out, sampler)
    made = Played(server, FederationState(0, shared, {}, {}))
    made.lines = lines
    return made


def test_bytes_of_rounds_by_hand():
    """First contact and clients that missed a round get 400 bytes; an up-to-date client gets the change."""
    method = Adds(None, None, Training(rounds=4), 0)
    # round 2's change touches three positions: one byte of coding, three gaps, three values
    gains = {1: lambda c: positions(c, 99), 2: lambda c: positions(c, 99), 3: lambda c: positions(7), 4: positions}
    made = make_server(FakeTrainer(method, lambda number, client: gains[number](client)))
    rows = [made.round(number) for number in (1, 2, 3, 4)]
    assert [row["uplink_bytes"] for row in rows] == [800] * 4
    assert [row["downlink_bytes"] for row in rows] == [
        400 + 400,  # first contact
        16 + 400,  # client 1 took part in round 1 (positions 0, 1, 99); client 2 is new
        400 + 16,  # client 0 missed round 2; client 2 gets positions 1, 2, 99
        6 + 6,  # both get position 7
    ]
    assert [row["downlink_bytes_per_client"] for row in rows] == [400, 208, 208, 6]
    assert [row["uplink_bytes_per_client"] for row in rows] == [400] * 4
    assert [row["cumulative_bytes"] for row in rows] == [1600, 2816, 4032, 4844]
    assert made.record.totals == {"uplink": 3200, "downlink": 1644, "train": 0.0, "eval": 0.0}
    assert [row["cohort"] for row in rows] == ["0 1", "1 2", "0 2", "0 2"]
    assert [row["train_loss"] for row in rows] == [0.5, 1.5, 1.0, 1.0]


def test_rounds_move_the_shared_leaves_and_count_participations():
    method = Adds(None, None, Training(rounds=4), 0)
    made = make_server(FakeTrainer(method, lambda number, client: positions(client)))
    made.round(1)
    made.round(2)
    # mean of two clients' gains, twice
    assert made.state.shared["x"][:4].tolist() == [0.5, 1.0, 0.5, 0.0]
    assert {c: float(tree["count"]) for c, tree in made.state.private.items()} == {0: 1, 1: 2, 2: 1}
    assert made.state.participations == {0: 1, 1: 2, 2: 1}
    assert made.state.seen == {0: 1, 1: 2, 2: 2}


def test_aggregation_weighs_by_samples():
    method = Adds(None, None, Training(rounds=4, aggregation="samples"), 0)
    made = make_server(FakeTrainer(method, lambda number, client: positions(client), sizes=(6, 2, 100)))
    made.round(1)
    assert made.state.shared["x"][:3].tolist() == [0.75, 0.25, 0.0]


def test_residuals_follow_their_clients():
    """One value of each message travels, the other waits for that client's next round."""
    method = Adds(None, None, Training(rounds=4), 0)
    entry = parse_entry("channels", "sparse", {"codec": "top-k", "density": 0.01, "error_feedback": True})
    channel = make_channel(entry, {"x": torch.zeros(100)})
    trainer = FakeTrainer(method, lambda number, client: 3 * positions(client) + 2 * positions(50 + client))
    made = make_server(trainer, channel)
    for number in (1, 2, 3):
        made.round(number)
    # rounds: 0 and 1 send their 3; 1 sends 2 + 2 and 2 its 3; 0 and 2 send 2 + 2; each halved by the mean
    expected = 1.5 * positions(0, 1, 2) + 2 * positions(50, 51, 52)
    assert torch.equal(made.state.shared["x"], expected)
    assert torch.equal(made.state.memory[1]["x"], 3 * positions(1))


def test_the_cohorts_share_is_of_the_clients_that_can_be_drawn():
    method = Adds(None, None, Training(rounds=1, participation=0.67), 0)
    shares, aggregate = [], method.aggregate
    method.aggregate = lambda *arguments: (shares.append(arguments[3]), aggregate(*arguments))[1]
    trainer = FakeTrainer(method, lambda number, client: positions(client), sizes=(5,) * 5)
    made = make_server(trainer, sampler=sample_cohort, held_out=(1, 4))
    row = made.round(1)
    assert set(row["cohort"].split()) < {"0", "2", "3"}
    assert shares == [pytest.approx(2 / 3)]


def test_weights_count_training_samples_only(tmp_path, digits, ragged):
    """Clients have validation samples in other proportions, which are no part of it."""
    spec = make_spec("fedavg", "mlp", aggregation="samples", participation=1.0)
    run = play(digits, ragged, spec)
    seen, uplink = [], run.channel.uplink
    run.channel.uplink = lambda messages, weights, *rest: (seen.append(weights), uplink(messages, weights, *rest))[1]
    run.round(1)
    assert seen[0].tolist() == pytest.approx([size / sum(SIZES) for size in SIZES])


class Drawing(Channel):
    """Writes down the first number that each client's generator gives."""

    def uplink(self, messages, weights, memory, state, streams):
        self.options.append([streams(position).random() for position in range(len(weights))])
        zeros = [0] * len(weights)
        return Delivery(weighted_mean(messages, weights), memory, zeros, zeros), state


def test_channel_draws_are_keyed_by_round_and_client():
    numbers = []
    method = Adds(None, None, Training(rounds=4), 0)
    made = make_server(FakeTrainer(method, lambda number, client: positions(client)), Drawing(numbers, {}))
    for number in (1, 2, 3, 4):
        made.round(number)
    expected = [[stream(0, "channel", n, client).random() for client in COHORTS[n]] for n in (1, 2, 3, 4)]
    assert numbers == expected
    assert len({value for row in numbers for value in row}) == 8


class Compact(Channel):
    """Delivers everything for one byte, and knows a form of the mean in seven."""

    def uplink(self, messages, weights, memory, state, streams):
        ones = [1] * len(weights)
        return Delivery(weighted_mean(messages, weights), memory, ones, [2] * len(weights), change_bytes=7), state


@pytest.mark.parametrize(("additive", "update"), [(True, 7), (False, 16)])
def test_codecs_form_of_the_change_serves_additive_methods_only(additive, update):
    method = Adds(None, None, Training(rounds=4), 0)
    method.additive = additive
    made = make_server(FakeTrainer(method, lambda number, client: positions(client, 99)), Compact(None, {}))
    assert made.round(1)["downlink_bytes"] == 400 + 2 + 400 + 2, "bytes that the exchange sent down are counted"
    assert made.round(2)["downlink_bytes"] == update + 2 + 400 + 2


def test_method_that_does_not_communicate_has_no_bytes():
    method = Adds(None, None, Training(rounds=4), 0)
    method.communicates = False
    made = make_server(FakeTrainer(method, lambda number, client: positions(client)))
    rows = [made.round(number) for number in (1, 2, 3)]
    for column in ("uplink_bytes", "downlink_bytes", "cumulative_bytes", "downlink_bytes_per_client"):
        assert [row[column] for row in rows] == [0, 0, 0], column


def test_not_finite_message_is_a_diverged_round():
    method = Adds(None, None, Training(rounds=4), 0)
    made = make_server(
        FakeTrainer(method, lambda number, client: positions(client) * (torch.inf if number == 2 else 1))
    )
    assert made.round(1)["diverged"] == 0
    before = made.state.shared["x"].clone()
    row = made.round(2)
    assert row["diverged"] == 1
    assert made.record.diverged_round == 2
    assert torch.equal(made.state.shared["x"], before), "the shared leaves stay those of the last sound round"
    assert made.state.participations == {0: 1, 1: 1}


def test_chunks_go_from_most_to_fewest_steps():
    method = Adds(None, None, Training(rounds=1), 0)
    trainer = FakeTrainer(method, lambda number, client: positions(client), sizes=(3, 9, 5, 9, 1))
    made = make_server(trainer, chunk=2, sampler=everyone)
    made.round(1)
    assert trainer.chunks == [[1, 3], [2, 0], [4]]
    assert made.state.shared["x"][:5].tolist() == pytest.approx([0.2] * 5)


def test_out_of_memory_halves_the_chunk():
    method = Adds(None, None, Training(rounds=1), 0)
    trainer = FakeTrainer(method, lambda number, client: positions(client), sizes=(3, 9, 5, 9, 1))
    train = trainer.train

    def small(clients, *rest):
        if len(clients) > 2:
            raise torch.OutOfMemoryError
        return train(clients, *rest)

    trainer.train = small
    made = make_server(trainer, chunk=5, sampler=everyone)
    row = made.round(1)
    assert trainer.chunks == [[1, 3], [2, 0], [4]]
    assert made.lines == ["out of memory with 5 clients at once; going on with 2"]
    assert row["train_loss"] == pytest.approx(2.0)
    assert made.state.shared["x"][:5].tolist() == pytest.approx([0.2] * 5)
    trainer.train = lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError)
    with pytest.raises(torch.OutOfMemoryError):
        made.round(2)


def test_client_store():
    created = []

    def create(client):
        created.append(client)
        return {"a": torch.full((2,), float(client)), "b": torch.tensor(float(-client))}

    store, device = ClientStore(create, {}), torch.device("cpu")
    stacked = store.gather([3, 1], device)
    assert stacked["a"].tolist() == [[3, 3], [1, 1]]
    assert stacked["b"].tolist() == [-3, -1]
    assert not store.trees, "reading stores nothing"
    changed = {name: leaf + 10 for name, leaf in stacked.items()}
    after = ClientStore(create, store.updated([3, 1], changed))
    assert not store.trees, "what was there stays as it was"
    assert set(after.trees) == {1, 3}
    changed["a"].zero_()
    assert after.gather([1, 2, 3], device)["a"].tolist() == [[11, 11], [2, 2], [13, 13]], "rows are copies"
    gathered = after.gather([1], device)
    gathered["a"].zero_()
    assert after.trees[1]["a"].tolist() == [11, 11]
    assert created == [3, 1, 2], "a stored client is not created again"
    assert after.gather([], device) == {}
