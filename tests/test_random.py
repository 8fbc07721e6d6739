"""Seeds and states of the device's generators. The numbers themselves are tested with the ops that draw them."""

import pytest
import torch


def draw(n=8):
    return torch.rand(n, device="tpu").cpu()


def test_a_state_is_the_seed_and_the_offset():
    torch.tpu.manual_seed(7)
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    assert state.view(torch.int64).tolist() == [7, 0]
    draw(8)
    assert torch.tpu.get_rng_state().view(torch.int64).tolist() == [7, 8]


def test_torch_manual_seed_seeds_the_device():
    torch.manual_seed(5)
    first = draw()
    assert torch.tpu.initial_seed() == 5
    torch.manual_seed(5)
    assert torch.equal(draw(), first)
    torch.tpu.manual_seed_all(6)
    assert not torch.equal(draw(), first)


def test_a_saved_state_gives_the_same_numbers():
    state, states = torch.tpu.get_rng_state(), torch.tpu.get_rng_state_all()
    first = draw()
    torch.tpu.set_rng_state(state, "tpu:0")
    assert torch.equal(draw(), first)
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(draw(), first)


@pytest.mark.parametrize("devices", [None, [0], ["tpu:0"]])
def test_fork_rng_restores(devices):
    torch.manual_seed(0)
    before = torch.tpu.get_rng_state()
    with torch.random.fork_rng(devices=devices, device_type="tpu"):
        draw()
        torch.manual_seed(3)
    assert torch.equal(torch.tpu.get_rng_state(), before)


def test_seed_takes_a_new_seed():
    torch.tpu.seed()
    first = torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != first


def test_default_generators_are_a_sequence_of_the_devices_generators():
    generators = torch.tpu.default_generators
    assert len(generators) == torch.tpu.device_count() == len(list(generators))
    assert generators[0].device == torch.device("tpu", 0)
    generators[0].manual_seed(11)
    assert torch.tpu.initial_seed() == 11
    with pytest.raises(IndexError, match="tpu:9"):
        generators[9]


def test_a_state_of_the_wrong_form_is_an_error():
    for bad in (torch.zeros(5, dtype=torch.uint8), torch.zeros(16)):
        with pytest.raises((RuntimeError, TypeError)):
            torch.tpu.set_rng_state(bad)


def test_a_generator_of_ones_own_leaves_the_default_alone():
    torch.manual_seed(0)
    before = torch.tpu.get_rng_state()
    own = torch.Generator("tpu").manual_seed(1)
    a = torch.rand(4, device="tpu", generator=own).cpu()
    b = torch.rand(4, device="tpu", generator=torch.Generator("tpu").manual_seed(1)).cpu()
    assert torch.equal(a, b)
    assert torch.equal(torch.tpu.get_rng_state(), before)
