# SPDX-License-Identifier: MIT OR Apache-2.0
"""Data and queries of a trading company, in the manner of the decision-support benchmark TPC-D.

The same seed and scale give the same rows. Scale 1 has some 6 million order lines.
"""

import datetime
import random

FIRST_DAY = datetime.date(1992, 1, 1)
DAYS = 2400
LAST_SHIPPED = datetime.date(1995, 6, 17)
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "OCEANIA"]
SEGMENTS = ["AUTO", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
NATIONS_PER_REGION = 5

# Tables that each server of a distributed database has whole, and those that are divided by key.
SMALL = {
    "regions": "id int PRIMARY KEY, name text NOT NULL",
    "nations": "id int PRIMARY KEY, name text NOT NULL, region_id int NOT NULL",
    "suppliers": "id int PRIMARY KEY, name text NOT NULL, nation_id int NOT NULL",
}
DIVIDED = {
    "customers": (
        "id int NOT NULL, name text NOT NULL, address text NOT NULL, phone text NOT NULL,"
        " nation_id int NOT NULL, balance numeric(12,2) NOT NULL, segment text NOT NULL"
    ),
    "orders": "order_id int NOT NULL, customer_id int NOT NULL, placed date NOT NULL, priority int NOT NULL",
    "lines": (
        "order_id int NOT NULL, number int NOT NULL, supplier_id int NOT NULL, quantity numeric(12,2) NOT NULL,"
        " price numeric(12,2) NOT NULL, discount numeric(4,2) NOT NULL, tax numeric(4,2) NOT NULL,"
        " returned char(1) NOT NULL, status char(1) NOT NULL, shipped date NOT NULL"
    ),
}
KEYS = {"customers": "id", "orders": "order_id", "lines": "order_id"}


class Data:
    """Rows of all tables, as text that COPY accepts."""

    def __init__(self, scale, seed=1):
        self.seed = seed
        self.counts = {
            "suppliers": max(10, round(10_000 * scale)),
            "customers": max(50, round(150_000 * scale)),
            "orders": max(500, round(1_500_000 * scale)),
        }

    def small(self, table):
        """Yields the rows of a table that is not divided."""
        nations = len(REGIONS) * NATIONS_PER_REGION
        if table == "regions":
            yield from (f"{i}\t{name}\n" for i, name in enumerate(REGIONS))
        elif table == "nations":
            for i in range(nations):
                region = i // NATIONS_PER_REGION
                yield f"{i}\t{REGIONS[region]}-{i % NATIONS_PER_REGION}\t{region}\n"
        else:
            draw = random.Random(f"suppliers {self.seed}")
            for i in range(self.counts["suppliers"]):
                yield f"{i}\tSupplier#{i:09}\t{draw.randrange(nations)}\n"

    def parts(self, table, count):
        """Yields the bounds of `count` ranges of a divided table's keys."""
        keys = self.counts["customers" if table == "customers" else "orders"]
        yield from ((keys * part // count, keys * (part + 1) // count) for part in range(count))

    def divided(self, table, first, end):
        """Yields the rows whose keys are in `first..end`."""
        rows = {"customers": self._customer, "orders": self._order, "lines": self._lines}[table]
        for key in range(first, end):
            yield from rows(key, random.Random(f"{table} {self.seed} {key}"))

    def _customer(self, key, draw):
        nation = draw.randrange(len(REGIONS) * NATIONS_PER_REGION)
        address = "".join(draw.choices("abcdefghijklmnop ", k=draw.randrange(10, 40))).strip()
        phone = f"{nation + 10}-{draw.randrange(1000)}-{draw.randrange(10_000)}"
        balance = draw.randrange(-99_999, 999_999) / 100
        segment = draw.choice(SEGMENTS)
        yield f"{key}\tCustomer#{key:09}\t{address}\t{phone}\t{nation}\t{balance:.2f}\t{segment}\n"

    def _placed(self, key):
        return FIRST_DAY + datetime.timedelta(random.Random(f"day {self.seed} {key}").randrange(DAYS))

    def _order(self, key, draw):
        customer = draw.randrange(self.counts["customers"])
        yield f"{key}\t{customer}\t{self._placed(key)}\t{draw.randrange(3)}\n"

    def _lines(self, key, draw):
        placed = self._placed(key)
        for number in range(draw.randrange(1, 8)):
            supplier, quantity = draw.randrange(self.counts["suppliers"]), draw.randrange(1, 51)
            price = quantity * draw.randrange(90_000, 200_000) / 100
            shipped = placed + datetime.timedelta(draw.randrange(1, 122))
            is_old = shipped <= LAST_SHIPPED
            returned, status = (draw.choice("RA"), "F") if is_old else ("N", "O")
            yield (
                f"{key}\t{number}\t{supplier}\t{quantity}\t{price:.2f}\t{draw.randrange(11) / 100:.2f}\t"
                f"{draw.randrange(9) / 100:.2f}\t{returned}\t{status}\t{shipped}\n"
            )


REVENUE = "sum(l.price * (1 - l.discount))"

# All sums are exact, and each order is complete: equal data gives equal text.
QUERIES = {
    "Q1": """
        SELECT l.returned, l.status, sum(l.quantity), sum(l.price), sum(l.price * (1 - l.discount)),
            sum(l.price * (1 - l.discount) * (1 + l.tax)), avg(l.quantity), avg(l.price), avg(l.discount), count(*)
        FROM lines l WHERE l.shipped <= date '1998-05-01' GROUP BY 1, 2 ORDER BY 1, 2""",
    "Q3": f"""
        SELECT o.order_id, {REVENUE} AS revenue, o.placed, o.priority
        FROM customers c JOIN orders o ON o.customer_id = c.id JOIN lines l ON l.order_id = o.order_id
        WHERE c.segment = 'BUILDING' AND o.placed < date '1995-03-15' AND l.shipped > date '1995-03-15'
        GROUP BY o.order_id, o.placed, o.priority ORDER BY revenue DESC, o.placed, o.order_id LIMIT 10""",
    "Q5": f"""
        SELECT n.name, {REVENUE} AS revenue
        FROM customers c JOIN orders o ON o.customer_id = c.id JOIN lines l ON l.order_id = o.order_id
            JOIN suppliers s ON s.id = l.supplier_id AND s.nation_id = c.nation_id
            JOIN nations n ON n.id = s.nation_id JOIN regions r ON r.id = n.region_id
        WHERE r.name = 'ASIA' AND o.placed >= date '1994-01-01' AND o.placed < date '1996-01-01'
        GROUP BY n.name ORDER BY revenue DESC, n.name""",
    "Q7": f"""
        SELECT a.name, b.name, extract(year FROM l.shipped) AS year, {REVENUE}
        FROM suppliers s JOIN lines l ON l.supplier_id = s.id JOIN orders o ON o.order_id = l.order_id
            JOIN customers c ON c.id = o.customer_id
            JOIN nations a ON a.id = s.nation_id JOIN nations b ON b.id = c.nation_id
        WHERE (a.name, b.name) IN (('EUROPE-0', 'EUROPE-1'), ('EUROPE-1', 'EUROPE-0'))
            AND l.shipped BETWEEN date '1995-01-01' AND date '1996-12-31'
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",
    "Q10": f"""
        SELECT c.id, c.name, {REVENUE} AS revenue, c.balance, n.name, c.address, c.phone
        FROM customers c JOIN orders o ON o.customer_id = c.id JOIN lines l ON l.order_id = o.order_id
            JOIN nations n ON n.id = c.nation_id
        WHERE o.placed >= date '1993-10-01' AND o.placed < date '1994-04-01' AND l.returned = 'R'
        GROUP BY c.id, c.name, c.balance, n.name, c.address, c.phone ORDER BY revenue DESC, c.id LIMIT 20""",
}
