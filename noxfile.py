"""The tests on every CPU plugin, and on other versions of torch.

`nox` for all plugins, `nox -s "plugins(xla-cpu-pjrt)"` for one, `nox -s torches` for other torches; tests by name after
`--`. Each session has an environment of its own, with the package built from this tree.
"""

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["plugins"]

RUNTIME = nox.project.load_toml("pyproject.toml")["dependency-groups"]
PLUGINS = {  # package -> module and file, newest PJRT version last
    "xla-cpu-pjrt==0.0.1": ("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so"),
    "fastatomstruct-xla-cpu==2026.6.23": ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    # It depends on jax, which the plugin itself does not need.
    "lammps-jax-pjrt-cpu==0.11.2": ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
}
# What takes long and does not depend on the plugin is left out.
FAST = ["tests", "--ignore=tests/test_sweep.py", "--ignore=tests/test_loader.py", "--ignore=tests/test_plugin.py"]


def install(session: nox.Session, torch: str) -> None:
    session.env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    session.install(f"torch=={torch}", *(r for r in RUNTIME["runtime"] if not r.startswith("torch==")))
    session.install(*RUNTIME["build"], *RUNTIME["test"])
    build = f"build/nox/torch-{torch}"
    session.install("--no-build-isolation", "--no-deps", f"--config-settings=build-dir={build}", ".")
    del session.env["TORCH_DEVICE_BACKEND_AUTOLOAD"]


@nox.session
@nox.parametrize("plugin", [nox.param(p, id=p.split("==")[0]) for p in PLUGINS])
def plugins(session: nox.Session, plugin: str) -> None:
    """The fast tests on one CPU plugin."""
    install(session, "2.13.0")
    session.install("--no-deps", plugin)
    module, file = PLUGINS[plugin]
    where = f"import importlib.util as u; print(u.find_spec({module!r}).submodule_search_locations[0])"
    folder = session.run("python", "-P", "-c", where, silent=True, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).strip()
    session.env["TORCH_TPU_PLUGIN"] = f"{folder}/{file}"
    session.run("python", "-P", "-m", "pytest", *(session.posargs or FAST))


@nox.session
@nox.parametrize("torch", ["2.14.1"])
def torches(session: nox.Session, torch: str) -> None:
    """The fast tests on another torch. PyPI's build of it is one for CUDA, of several GB."""
    install(session, torch)
    session.run("python", "-P", "-m", "pytest", *(session.posargs or FAST))
