"""save, load, map_location, pickle and deepcopy."""

import copy
import io
import pickle

import pytest
import torch


def saved(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file, **options)
    file.seek(0)
    return file


def base(device="tpu", dtype=torch.float32):
    return torch.arange(12).reshape(3, 4).to(dtype).to(device)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8, torch.float8_e4m3fn]
)
def test_tensors_come_back_on_their_device(dtype):
    x = torch.load(saved(base(dtype=dtype)))
    assert x.device == torch.device("tpu", 0) and x.dtype is dtype
    assert x.tolist() == base("cpu", dtype).tolist()


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
@pytest.mark.parametrize("target", ["cpu", "tpu", "tpu:0", torch.device("tpu"), None])
def test_map_location(options, target):
    want = "cpu" if target == "cpu" else "tpu"
    there = torch.load(saved({"a": base(), "b": [base("cpu")]}, **options), map_location=target)
    assert there["a"].device.type == want
    assert there["b"][0].device.type == ("tpu" if target is not None and want == "tpu" else "cpu")
    assert torch.equal(there["a"].cpu(), base("cpu"))
    mapped = torch.load(saved(base(), **options), map_location={"tpu:0": "cpu"})
    assert mapped.device.type == "cpu"
    called = torch.load(saved(base(), **options), map_location=lambda storage, location: storage)
    assert called.tolist() == base("cpu").tolist()


def test_a_file_saved_from_the_device_loads_where_there_is_no_device(run_python, tmp_path):
    torch.save({"w": base(), "v": base()[1:, ::2]}, tmp_path / "x.pt")
    out = run_python(
        "import torch; d = torch.load('x.pt', map_location='cpu'); print(d['w'].sum().item(), d['v'].tolist())",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out.stdout.split("\n")[0] == "66.0 [[4.0, 6.0], [8.0, 10.0]]", out.stderr


def test_views_of_one_storage_still_share_after_loading():
    x = base()
    a, b, c = torch.load(saved([x, x[1], x.t()]))
    a[1, 2] = 50
    assert b[2].item() == 50 and c[2, 1].item() == 50
    assert (c.stride(), b.storage_offset()) == ((1, 4), 4)


def test_odd_tensors():
    things = [
        torch.empty(0, 3, device="tpu"),
        torch.tensor(3.5, device="tpu"),
        torch.empty(2, device="tpu"),
        base().expand(2, 3, 4),
        base(dtype=torch.complex64).conj(),
        base(dtype=torch.complex64).conj().imag,
        base().t(),
        torch.nn.Parameter(base()),
        base().requires_grad_(),
    ]
    for thing, back in zip(things, torch.load(saved(things)), strict=True):
        assert type(back) is type(thing) and back.requires_grad == thing.requires_grad
        assert back.stride() == thing.stride() and back.is_conj() == thing.is_conj() and back.is_neg() == thing.is_neg()
        assert torch.equal(back.cpu().resolve_conj().resolve_neg(), thing.cpu().resolve_conj().resolve_neg())


def test_pickle_and_deepcopy():
    x = base().requires_grad_()
    for back in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (
            back.device == x.device and back.requires_grad and torch.equal(back, x) and back.data_ptr() != x.data_ptr()
        )
    module = torch.nn.Linear(3, 2).to("tpu")
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.weight.zero_()
    assert module.weight.abs().sum().item() > 0
    assert (
        copy.deepcopy(torch.device("tpu", 0))
        == pickle.loads(pickle.dumps(torch.device("tpu", 0)))
        == torch.device("tpu:0")
    )
    storage = copy.deepcopy(base().untyped_storage())
    assert storage.device.type == "tpu" and storage.nbytes() == 48


def test_modules_and_optimizers_go_through_files():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to("tpu")
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(base()).sum().backward()
    optimizer.step()
    state = torch.load(saved({"m": module.state_dict(), "o": optimizer.state_dict()}))
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to("tpu")
    again = torch.optim.AdamW(other.parameters(), lr=0.5)
    other.load_state_dict(state["m"])
    again.load_state_dict(state["o"])
    for m, o in ((module, optimizer), (other, again)):
        o.zero_grad()
        m(base()).square().sum().backward()
        o.step()
    for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)
    assert again.param_groups[0]["lr"] == 0.1


def test_load_with_mmap_and_weights_only(tmp_path):
    torch.save({"w": base("cpu")}, tmp_path / "w.pt")
    there = torch.load(tmp_path / "w.pt", mmap=True, weights_only=True)
    assert there["w"].to("tpu").sum().item() == 66
    torch.save({"w": base()}, tmp_path / "w.pt")
    assert torch.load(tmp_path / "w.pt", weights_only=True)["w"].device.type == "tpu"
