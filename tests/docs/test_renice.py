"""The commands of the page on the service that raise a job reach all of its threads."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/how-to/service.md"
# Threads that exist before their process is made nicer do not follow it by themselves.
PROGRAM = """
import sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def test_all_threads_and_their_group_are_raised():
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    [block] = [each for each in blocks if "renice" in each]
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + 3  # Only root makes a process less nice.
    commands = block.replace("-n 0", f"-n {niceness}")
    commands = commands.replace("echo 0", f"echo {niceness}")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        commands = re.sub(r"\$\(bicycle .*?\); do", f"{process.pid}; do", commands)
        subprocess.run(["sh", "-ec", commands], check=True, stdout=subprocess.DEVNULL)
        threads = [int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()]
        found = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        group = Path(f"/proc/{process.pid}/autogroup")
        group_words = group.read_text("ascii").split() if group.exists() else [str(niceness)]
        process.stdin.close()

    assert len(threads) == 4
    assert found == {niceness}
    assert group_words[-1] == str(niceness)
