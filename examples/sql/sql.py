#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Distributed SQL: a PostgreSQL master and two servers that each have half of the orders.

The master runs decision-support queries over foreign tables (postgres_fdw), once plain and once with all
servers under `portolan sockets`. Each result is compared with that of a database that has all rows itself.

    $ examples/sql/sql.py --scale 0.02                  # three servers on this host
    $ sudo examples/sql/sql.py --scale 0.02 --lab       # on three hosts of a lab

It needs PostgreSQL with postgres_fdw (Debian: postgresql, postgresql-contrib). Times are medians of
milliseconds; the first run of a query does not count.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile

import data
from servers import PASSWORD, ROLE, Failed, Hosts, Server, as_user, missing, program, run

PARTS = 2
WHOLE, SPREAD, BANK = "whole", "spread", "bank"


def load(master, parts, rows):
    """Creates the database with all rows on the master, and the one whose rows the servers `parts` have."""
    for database in (WHOLE, SPREAD):
        master.sql("postgres", f"CREATE DATABASE {database}")
        for table, columns in data.SMALL.items():
            master.sql(database, f"CREATE TABLE {table} ({columns})")
            master.copy(database, table, rows.small(table))
    servers = "CREATE EXTENSION postgres_fdw;"
    for index, part in enumerate(parts):
        part.sql("postgres", f"CREATE DATABASE {SPREAD}")
        servers += (
            f"CREATE SERVER part{index} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{part.address}',"
            f" port '{part.port}', dbname '{SPREAD}', fetch_size '1000', async_capable 'true');"
            f"CREATE USER MAPPING FOR {ROLE} SERVER part{index} OPTIONS (user '{ROLE}', password '{PASSWORD}');"
        )
    master.sql(SPREAD, servers)
    for table, columns in data.DIVIDED.items():
        divide(master, parts, rows, table, columns)
    for server in (master, *parts):
        for database in (WHOLE, SPREAD) if server is master else (SPREAD,):
            server.sql(database, "ANALYZE")


def divide(master, parts, rows, table, columns):
    """Creates one divided table in all databases, with its rows."""
    key = data.KEYS[table]
    index = f"CREATE INDEX ON {table} ({key})"
    master.sql(WHOLE, f"CREATE TABLE {table} ({columns})")
    master.sql(SPREAD, f"CREATE TABLE {table} ({columns}) PARTITION BY RANGE ({key})")
    for number, (first, end) in enumerate(rows.parts(table, len(parts))):
        parts[number].sql(SPREAD, f"CREATE TABLE {table} ({columns})")
        for server, database in ((master, WHOLE), (parts[number], SPREAD)):
            server.copy(database, table, rows.divided(table, first, end))
        parts[number].sql(SPREAD, index)
        master.sql(
            SPREAD,
            f"CREATE FOREIGN TABLE {table}{number} PARTITION OF {table} FOR VALUES FROM ({first}) TO ({end})"
            f" SERVER part{number} OPTIONS (table_name '{table}')",
        )
    master.sql(WHOLE, index)


def measure(master, database, repeats):
    """Runs all queries in one session, and returns for each its result and the median of its times."""
    script = "\\timing on\n"
    for name, query in data.QUERIES.items():
        script += f"\\echo == {name}\n" + f"{query};\n" * (repeats + 1)
    found = {}
    for text in master.sql(database, script).split("== ")[1:]:
        name, text = text.split("\n", 1)
        results = [result.strip() for result in re.split(r"Time: .*\n", text)[:-1]]
        times = [float(time) for time in re.findall(r"Time: ([\d.]+) ms", text)]
        if len(set(results)) != 1:
            raise Failed(f"{name} has different results in one database")
        found[name] = results[0], statistics.median(times[1:])
    return found


def pgbench(master, under, transactions):
    """Runs pgbench by TCP. Returns transactions per second: with reads only, and with writes, which are checked."""
    rates = []
    for mode in (["--select-only"], []):
        options = ["--client=4", f"--transactions={transactions}", "--no-vacuum", f"--username={ROLE}", *mode]
        where = ["--host=127.0.0.1", f"--port={master.port}", BANK]
        text = run([*master.place, *as_user(), *under, program("pgbench"), *options, *where], cwd="/")
        done = re.search(r"actually processed: (\d+)/(\d+)", text)
        if done is None or done[1] != done[2]:
            raise Failed(f"pgbench lost transactions: {text}")
        rates.append(float(re.search(r"tps = ([\d.]+)", text)[1]))
    sums = master.sql(
        BANK,
        "SELECT count(*) FROM (SELECT sum(abalance) FROM pgbench_accounts UNION SELECT sum(tbalance) FROM"
        " pgbench_tellers UNION SELECT sum(bbalance) FROM pgbench_branches UNION SELECT sum(delta) FROM"
        " pgbench_history) AS sums",
    )
    if sums.strip() != "1":
        raise Failed("the balances of pgbench do not agree")
    return rates


def one_round(servers, under, options):
    """Starts all servers by `under`. Returns the queries' results and times, pgbench's rates, and stream bytes."""
    master, parts = servers[0], servers[1:]
    started = []
    try:
        for server in servers:
            started.append(server)
            server.start(under)
        if not under:
            load(master, parts, data.Data(options.scale))
            master.sql("postgres", f"CREATE DATABASE {BANK}")
            initialize = ["--initialize", "--quiet", f"--username={ROLE}", f"--host={master.directory}"]
            run([program("pgbench"), *initialize, f"--port={master.port}", BANK], cwd="/")
        whole = measure(master, WHOLE, options.repeats)
        spread = measure(master, SPREAD, options.repeats)
        rates = pgbench(master, under, options.pgbench) if options.pgbench else []
    finally:
        bytes_of = [server.stop() for server in started]
    return whole, spread, rates, bytes_of


def report(plain, own):
    """Prints both rounds. Returns the number of results that differ from those of the whole database."""
    whole, spread, rates, _ = plain
    wrong = 0
    print(f"{'query':<8}{'one server':>12}{'plain':>10}{'sockets':>10}{'ratio':>8}  result")
    for name, (result, alone) in whole.items():
        before, after = spread[name][1], own[1][name][1]
        is_same = all(found[name][0] == result for found in (spread, own[0], own[1]))
        wrong += not is_same
        rows = f"{len(result.splitlines())} rows, " + ("equal" if is_same else "DIFFERENT")
        print(f"{name:<8}{alone:>12.1f}{before:>10.1f}{after:>10.1f}{before / after:>8.2f}  {rows}")
    for name, before, after in zip(("reads only", "reads and writes"), rates, own[2]):
        print(f"pgbench, {name}: {before:.0f} transactions/s plain, {after:.0f} under sockets")
    for index, (memory, kernel) in enumerate(own[3]):
        share = 100 * memory / max(1, memory + kernel)
        name = "master" if index == 0 else f"part {index - 1}"
        print(f"{name}: {memory} bytes of TCP streams by memory, {kernel} by the kernel: {share:.1f} % shortcut")
    return wrong


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--portolan", default=shutil.which("portolan") or "portolan", help="the program portolan")
    parser.add_argument("--scale", type=float, default=0.01, help="1 has 6 million order lines (default 0.01)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each query that count (default 5)")
    parser.add_argument("--spin", default="0", help="--spin of portolan sockets (default 0)")
    parser.add_argument("--pgbench", type=int, default=0, help="also run pgbench with this many transactions per client")
    parser.add_argument("--lab", action="store_true", help="one host of a lab for each server; needs root")
    return parser.parse_args()


def main():
    options = arguments()
    if lacks := missing():
        print(f"SKIPPED: {lacks} is not installed")
        return 0
    sockets = [options.portolan, "sockets", "--spin", options.spin, "--stats", "--"]
    with tempfile.TemporaryDirectory(prefix="portolan-sql-") as directory:
        os.chmod(directory, 0o755)
        with Hosts(options.portolan, PARTS + 1, options.lab) as hosts:
            names = ["master", *(f"part{index}" for index in range(PARTS))]
            servers = [Server(directory, name, *hosts.place(index)) for index, name in enumerate(names)]
            rounds = [one_round(servers, under, options) for under in ([], sockets)]
    return 1 if report(*rounds) else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    os.environ["PGPASSWORD"] = PASSWORD
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"sql: {error}")
