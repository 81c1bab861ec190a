# SPDX-License-Identifier: MIT OR Apache-2.0
"""PostgreSQL servers in a temporary directory, on this host or on the hosts of a lab."""

import glob
import os
import pathlib
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import time

ROLE = "trader"
# Other users of this host must not become this superuser. Clients find it in the environment.
PASSWORD = secrets.token_hex(16)
START_S = 120
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "work_mem": "64MB",
    "max_wal_size": "1GB",
    "max_connections": "40",
    "max_parallel_workers": "0",
    "jit": "off",
    "autovacuum": "off",
    "enable_partitionwise_join": "on",
    "enable_partitionwise_aggregate": "on",
    "log_min_messages": "warning",
}


class Failed(Exception):
    """A command of this example failed."""


def program(name):
    """Returns the path of one of PostgreSQL's programs, or None."""
    installed = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    return shutil.which(name) or (installed[-1] if installed else None)


def missing():
    """Returns the first program, extension or user that is not installed, or None."""
    for name in ("postgres", "initdb", "pg_ctl", "psql", "pgbench"):
        if program(name) is None:
            return f"PostgreSQL's {name}"
    if not glob.glob("/usr/share/postgresql/*/extension/postgres_fdw.control"):
        return "PostgreSQL's extension postgres_fdw"
    if os.geteuid() == 0 and "postgres" not in (user.pw_name for user in pwd.getpwall()):
        return "the user postgres"
    return None


def as_user():
    """Returns the command that runs another as an ordinary user, because PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def run(command, text=None, **options):
    """Runs a command, and returns its output."""
    ended = subprocess.run(command, input=text, capture_output=True, text=True, **options)
    if ended.returncode != 0:
        shown = " ".join(map(str, command))
        raise Failed(f"{shown} failed with status {ended.returncode}: {ended.stderr.strip()[-2000:]}")
    return ended.stdout


class Server:
    """One server. `place` is the command that enters its host, and `address` the host's."""

    def __init__(self, directory, name, place, address):
        self.directory, self.place, self.address = pathlib.Path(directory) / name, place, address
        self.log = self.directory.with_suffix(".log")
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.directory.mkdir()
        password = self.directory.with_suffix(".password")
        with open(os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(PASSWORD)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (self.directory, password):
                os.chown(path, user.pw_uid, user.pw_gid)
        settings = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={ROLE}"]
        where = [f"--pgdata={self.directory}", f"--pwfile={password}"]
        run([*as_user(), program("initdb"), *where, *settings], cwd="/")
        password.unlink()
        with open(self.directory / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
            file.write(f"listen_addresses = '127.0.0.1,{address}'\nport = {self.port}\n")
            file.write(f"unix_socket_directories = '{self.directory}'\n")
        with open(self.directory / "pg_hba.conf", "a") as file:
            file.write("host all all 10.0.0.0/8 scram-sha-256\n")
        self.process = None

    def start(self, under):
        """Starts the server by the command `under`, and waits until it answers."""
        command = [*self.place, *as_user(), *under, program("postgres"), "-D", self.directory]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        end = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise Failed(f"{self.directory.name} does not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self):
        ask = [program("psql"), *self._connection("postgres"), "-c", "SELECT 1"]
        return subprocess.run(ask, capture_output=True, cwd="/").returncode == 0

    def stop(self):
        """Stops the server, and returns the bytes of its TCP streams by memory and by the kernel."""
        if self.process is None:
            return 0, 0
        stop = [program("pg_ctl"), "stop", "--mode=fast", "--wait", f"--timeout={START_S}", f"--pgdata={self.directory}"]
        try:
            run([*as_user(), *stop], cwd="/")
            self.process.wait(START_S)
        finally:
            self.process.kill()
            self.process = None
        total = re.search(r"^ +all +total((?: +\d+)+)", self.log.read_text(), re.MULTILINE)
        if total is None:
            return 0, 0
        _, memory_out, kernel_out, memory_in, kernel_in = map(int, total[1].split())
        return memory_out + memory_in, kernel_out + kernel_in

    def _connection(self, database):
        # A Unix socket: only the servers' own connections are TCP.
        return [f"--host={self.directory}", f"--port={self.port}", f"--username={ROLE}", f"--dbname={database}"]

    def sql(self, database, text):
        """Runs statements, and returns the output of psql."""
        options = ["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"]
        return run([program("psql"), *self._connection(database), *options], text, cwd="/")

    def copy(self, database, table, rows):
        """Adds rows to a table."""
        self.sql(database, f"COPY {table} FROM STDIN;\n{''.join(rows)}\\.\n")


class Hosts:
    """This host for all servers, or a lab with one host for each, made for this run."""

    def __init__(self, portolan, count, use_lab):
        self.portolan, self.count = portolan, count
        self.name = f"sql-{os.getpid()}" if use_lab else None

    def __enter__(self):
        if self.name:
            run([self.portolan, "lab", "up", "--name", self.name, "--hosts", str(self.count)])
        return self

    def __exit__(self, *_):
        if self.name:
            run([self.portolan, "lab", "down", "--name", self.name])

    def place(self, index):
        """Returns the command that enters a host, and the host's address."""
        if self.name is None:
            return [], "127.0.0.1"
        enter = [self.portolan, "lab", "exec", "--name", self.name, f"h{index}", "--"]
        shown = run([*enter, "ip", "-4", "-o", "address", "show", "dev", "eth0"])
        return enter, re.search(r"inet ([\d.]+)", shown)[1]
