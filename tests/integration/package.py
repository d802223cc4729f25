#!/usr/bin/env python3
"""The Debian package: what is in it, and its life in a folder that stands for a machine: installed, run, upgraded, purged."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, free_port, main, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["MOONCAF_BUILD"])
TINY = "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab=512"
WORK = tempfile.TemporaryDirectory(prefix="mooncaf-package-")
FOLDER = pathlib.Path(WORK.name)
AS_ROOT = [] if os.geteuid() == 0 else ["fakeroot"]


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def package(version=None):
    """Made as its user makes it; another version is packed faster, and differs in nothing else."""
    out = FOLDER / f"packages-{version}"
    run("cpack", "-G", "DEB", "-B", out, *(["-D", f"CPACK_PACKAGE_VERSION={version}", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"] if version else []), cwd=BUILD)
    return next(out.glob("*.deb"))


class Machine:
    """A folder with a dpkg of its own. Maintainer scripts run on this machine and are told the folder."""

    def __init__(self):
        self.root = FOLDER / "root"
        for name in ("etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/sbin", "tmp"):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        self.before = self.files()

    def dpkg(self, *words):
        return run(*AS_ROOT, "dpkg", f"--root={self.root}", "--force-not-root", "--force-depends", "--force-script-chrootless", *words)

    def files(self):
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if not p.is_dir() and "var/lib/dpkg" not in p.as_posix()}

    def version(self):
        return re.search(r"Version: (\S+)", self.dpkg("-s", "mooncaf"))[1]


FIRST = package()
MACHINE = Machine()


def it_has_what_a_user_and_an_operator_look_for():
    about = run("dpkg-deb", "-f", FIRST)
    for line in (r"Package: mooncaf", r"Depends: .*libcaf.*libssl3", r"Maintainer: .*@", r"Architecture: \w+"):
        assert re.search(line, about), about
    listing = run("dpkg-deb", "-c", FIRST)
    paths = {line.split()[5].lstrip("."): line.split()[0] for line in listing.splitlines()}
    for path in ("/usr/bin/mooncaf", "/usr/share/man/man1/mooncaf.1.gz", "/usr/share/man/man1/mooncaf-up.1.gz",
                 "/usr/share/man/man1/mooncaf-store-put.1.gz", "/usr/share/man/man1/mooncaf-trace-generate.1.gz",
                 "/usr/share/bash-completion/completions/mooncaf", "/usr/lib/systemd/system/mooncaf@.service",
                 "/usr/lib/systemd/user/mooncaf-agent@.service", "/usr/lib/sysusers.d/mooncaf.conf", "/etc/mooncaf/mooncaf.toml",
                 "/usr/share/mooncaf/alerts.yml", "/usr/share/mooncaf/profiles/h200-llama8b.toml", "/usr/share/doc/mooncaf/OPERATIONS.md",
                 "/usr/share/doc/mooncaf/copyright"):
        assert path in paths, (path, sorted(paths))
    strange = [line for line in listing.splitlines() if line.split()[1] != "root/root" or line[5] == "w" or line[8] == "w"]
    assert not strange, strange
    assert "/etc/mooncaf/mooncaf.toml" in run("dpkg-deb", "-I", FIRST, "conffiles")
    assert FIRST.stat().st_size < 8_000_000, FIRST.stat().st_size
    print(f"     {FIRST.name}: {FIRST.stat().st_size / 1e6:.1f} MB")


def it_installs_and_its_program_serves_with_its_configuration():
    MACHINE.dpkg("-i", FIRST)
    root = MACHINE.root
    assert "mooncaf:" in (root / "etc/passwd").read_text()
    port = free_port()
    env = {"PATH": os.environ["PATH"], "HOME": str(FOLDER / "home"), "TMPDIR": os.environ["TMPDIR"]}
    (FOLDER / "home").mkdir()
    server = subprocess.Popen([root / "usr/bin/mooncaf", "--config", root / "etc/mooncaf/mooncaf.toml", "--model", TINY, "--cache-dram", "32MiB",
                               "--http", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"],
                              env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = Client("127.0.0.1", port)
        wait_until("it serves", lambda: server.poll() is not None or client.healthy())
        assert client.complete(prompt="Hello", max_tokens=4)["usage"]["completion_tokens"] >= 1
    finally:
        server.terminate()
        assert server.wait(30) == 0


def every_command_has_a_page_that_renders_without_a_warning():
    pages = sorted((MACHINE.root / "usr/share/man/man1").glob("*.1.gz"))
    assert len(pages) > 30, pages
    shown = {}
    for page in pages:
        done = subprocess.run(["man", "--warnings=w", "-l", str(page)], capture_output=True, text=True,
                              env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat", "MAN_KEEP_FORMATTING": ""})
        assert done.returncode == 0 and not done.stderr, f"{page.name}: {done.stderr}"
        shown[page.name] = done.stdout
    program = MACHINE.root / "usr/bin/mooncaf"
    options = re.findall(r"^  (--[a-z0-9-]+)", run(program, "--help").split("This process and its cluster")[1], re.M)
    assert len(options) > 100
    lacking = [o for o in options if o not in shown["mooncaf.1.gz"].replace("‐", "-").replace("−", "-")]
    assert not lacking, lacking
    assert "--keep-going" in shown["mooncaf-up.1.gz"] and "mooncaf store put KEY" in shown["mooncaf-store-put.1.gz"]


def bash_completes_commands_options_and_values():
    completion = MACHINE.root / "usr/share/bash-completion/completions/mooncaf"

    def completed(*words):
        script = f"""source {completion}
COMP_WORDS=({' '.join(f'"{w}"' for w in words)}); COMP_CWORD={len(words) - 1}
_mooncaf "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}\""""
        return run("bash", "-c", script, cwd=FOLDER).split()

    program = str(MACHINE.root / "usr/bin/mooncaf")
    assert completed(program, "st") == ["status", "stop", "store"]
    assert completed(program, "store", "pu") == ["put"]
    assert completed(program, "restart", "cluster.toml", "--ro") == ["--rolling"]
    assert completed(program, "--mode", "c") == ["coupled"]
    assert "--ttft-slo" in completed(program, "--ttft")
    (FOLDER / "cluster.toml").touch()
    assert completed(program, "up", "clus") == ["cluster.toml"]
    assert completed(program, "--ttft-slo", "") == []


def the_units_are_sound_and_confined():
    units = FOLDER / "units"
    units.mkdir()
    for place in ("system/mooncaf@.service", "user/mooncaf-agent@.service"):
        unit = MACHINE.root / "usr/lib/systemd" / place
        text = unit.read_text()
        assert "ExecStart=/usr/bin/mooncaf " in text
        (units / unit.name).write_text(text.replace("/usr/bin/mooncaf", str(MACHINE.root / "usr/bin/mooncaf")))
    verify = ["systemd-analyze", "verify", "--man=no"]
    for words in ([*verify, units / "mooncaf@test.service"], [*verify, "--user", units / "mooncaf-agent@chat-front.service"]):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "XDG_RUNTIME_DIR": str(FOLDER), "SYSTEMD_UNIT_PATH": f"{units}:"})
        # Of units of this machine it complains, too.
        said = [line for line in done.stderr.splitlines() if "mooncaf" in line]
        assert not said, said
    exposure = run("systemd-analyze", "security", "--offline=true", units / "mooncaf@.service")
    level = float(re.search(r"exposure level for .*: (\d+\.\d+)", exposure)[1])
    print(f"     exposure of mooncaf@.service: {level}")
    assert level < 2.5, exposure


def an_upgrade_keeps_what_the_operator_wrote():
    config = MACHINE.root / "etc/mooncaf/mooncaf.toml"
    config.write_text(config.read_text() + "\n[metrics]\nlog_format = \"json\"\n")
    written, before = config.read_text(), MACHINE.version()
    major, minor, patch = before.split(".")
    MACHINE.dpkg("-i", package(f"{major}.{minor}.{int(patch) + 1}"))
    assert MACHINE.version() == f"{major}.{minor}.{int(patch) + 1}"
    assert config.read_text() == written
    assert run(MACHINE.root / "usr/bin/mooncaf", "--version").startswith("mooncaf ")


def a_purge_leaves_the_account_alone():
    kept = MACHINE.root / "var/lib/mooncaf/ssd"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "block").touch()
    MACHINE.dpkg("--remove", "mooncaf")
    assert (MACHINE.root / "etc/mooncaf/mooncaf.toml").exists() and (kept / "block").exists(), "removing is not purging"
    MACHINE.dpkg("--purge", "mooncaf")
    left = MACHINE.files() - MACHINE.before
    assert all(re.fullmatch(r"etc/\.?(passwd|shadow|group|gshadow)(-|\.lock)?|etc/\.pwd\.lock|var/log/dpkg\.log", name) for name in left), left
    assert not (MACHINE.root / "var/lib/mooncaf").exists() and not (MACHINE.root / "etc/mooncaf").exists()
    assert "mooncaf" not in (MACHINE.root / "var/lib/dpkg/status").read_text()


if __name__ == "__main__":
    try:
        main([it_has_what_a_user_and_an_operator_look_for, it_installs_and_its_program_serves_with_its_configuration,
              every_command_has_a_page_that_renders_without_a_warning, bash_completes_commands_options_and_values,
              the_units_are_sound_and_confined, an_upgrade_keeps_what_the_operator_wrote, a_purge_leaves_the_account_alone])
    finally:
        WORK.cleanup()
