# SPDX-License-Identifier: BSD-2-Clause
"""What bench/programs and bench/allocators share: the allocators that are compared, how a command is
run with one of them, and what that took."""
import argparse
import ctypes.util
import os
import re
import signal
import subprocess
import sys
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.path.realpath(os.environ.get("top_builddir", TOP))  # set: what was built there
LIBRARY = os.path.join(BUILD, ".libs/libpinalloc.so")
STOCK = "jemalloc"
TIMEOUT = 600  # seconds, for one run of one program
FIGURES = "cpu_ms", "wall_ms", "rss_kib", "faults", "status"


class Failure(Exception):
    """Something could not be measured; its text is one line."""


class Parser(argparse.ArgumentParser):
    """Help is the script's docstring; a wrong command line gets one line."""

    def __init__(self, script, text):
        self.script = script
        super().__init__(prog=script, usage=argparse.SUPPRESS, description=text,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        self.exit(2, f"{self.script}: {message} (--help says more)\n")


def names_of(known):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names
    return parse


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def contestants():
    """Preloaded in all programs, glibc too, because redis is linked with another malloc."""
    known = {"glibc": "libc.so.6", STOCK: "libjemalloc.so.2", "mimalloc": "libmimalloc.so",
             "tcmalloc": "libtcmalloc_minimal.so.4"}
    # libmimalloc.so.2, or .3 on newer systems; of the others few distributions have any.
    for name, library in ("mimalloc", "mimalloc"), ("snmalloc", "snmallocshim"), ("rpmalloc", "rpmalloc"):
        known[name] = ctypes.util.find_library(library) or known.get(name)
    return {name: {"LD_PRELOAD": path} for name, path in {**known, "pinalloc": LIBRARY}.items() if path}


def column(text):
    """PATH.so, or NAME=VALUE, or several with commas between: the library, or another one, with these."""
    settings = {"LD_PRELOAD": LIBRARY}
    # A comma may also be part of a value, such as MALLOC_CONF's.
    for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*=)", text):
        name, is_setting, value = part.partition("=")
        if not is_setting and not os.path.isfile(name):
            raise argparse.ArgumentTypeError(f"{part!r} is neither NAME=VALUE nor a library")
        settings.update({name: value} if is_setting else {"LD_PRELOAD": os.path.realpath(name)})
    return text, settings


def environment(settings):
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1",
            "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **settings}


def tool(*command, **more):
    """A step that is no measurement: what it printed, or a failure with its last line."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "it does not say why").splitlines()
        errors = [line for line in lines if "error" in line]
        raise Failure(f"{' '.join(command)[:100]} failed: {(errors or lines)[-1]}")
    return done.stdout


def prepare(work, those):
    """Installs what is missing, builds the library and what measures; tries what is to be preloaded."""
    if BUILD == TOP:
        subprocess.run(["test/install-packages", "--all"], cwd=TOP, check=True, stdout=sys.stderr)
        if not os.path.exists(os.path.join(TOP, "configure")):
            tool("autoreconf", "-i", cwd=TOP)
        if not os.path.exists(os.path.join(TOP, "Makefile")):
            tool("./configure", cwd=TOP)
        tool("make", "-s", f"-j{os.cpu_count()}", cwd=TOP)
    tool("gcc", "-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-o", f"{work}/measure",
         f"{TOP}/bench/measure.c")
    for name, settings in those.items():
        maps = tool("cat", "/proc/self/maps", env=environment(settings), cwd=work)
        # The linker only warns of what it cannot preload.
        if os.path.basename(settings["LD_PRELOAD"].split(":")[0]).split(".so")[0] not in maps:
            raise Failure(f"{settings['LD_PRELOAD']}, which is {name}, cannot be preloaded")


def last_line(path):
    with open(path, errors="replace") as file:
        return ([line.strip() for line in file if line.strip()] or ["no word of it"])[-1]


def measure(what, command, settings, work, meanwhile=None):
    """What one run took, and what it printed, in the current directory. Its processes do not outlive it."""
    variables = [f"{key}={value}" for key, value in environment(settings).items()]
    if os.path.exists("used"):
        os.unlink("used")
    with open("output", "w") as output, open("errors", "w") as errors:
        process = subprocess.Popen([f"{work}/measure", "used", *variables, *command], stdout=output,
                                   stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        try:
            if meanwhile:
                meanwhile(process)
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failure(f"{what} has not ended after {TIMEOUT} s") from None
        except Failure as failure:
            raise Failure(f"{what}: {failure}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not os.path.exists("used"):
        raise Failure(f"{what} could not be measured: {last_line('errors')}")
    with open("used") as file:
        figures = dict(zip(FIGURES, map(float, file.read().split())))
    if figures["status"]:
        raise Failure(f"{what} failed with status {figures['status']:.0f}: {last_line('errors')}")
    with open("output", errors="replace") as file:
        return figures, file.read()


def say(text):
    """For who waits."""
    if sys.stderr.isatty():
        print(f"{text:70}", end="\r", file=sys.stderr, flush=True)


def machine():
    model = re.search(r"^Model name: *(.*)", tool("lscpu"), re.M)[1]
    with open("/proc/meminfo") as file:
        memory = int(re.search(r"MemTotal: *(\d+)", file.read())[1]) / 1048576
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        huge = re.search(r"\[(\w+)]", file.read())[1]
    return (f"{model}, {os.cpu_count()} processors, {memory:.1f} GiB, transparent huge pages {huge},"
            f" Linux {os.uname().release}, {time.strftime('%F')}, load {os.getloadavg()[0]:.1f}")


def line(title, texts, names, width=10):
    return f"{title:20}" + "".join(f"{text:>{max(width, len(name) + 2)}}" for name, text in zip(names, texts))
