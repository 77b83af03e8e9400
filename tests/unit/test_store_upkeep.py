"""A store is exported, backed up, vacuumed and rid of a user while a daemon writes it, and whatever kills that."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_cluster import small
from sqlalchemy import func, select
from test_store_databases import opened, url

from asad.cli.asactl import asactl
from asad.decisions import Cause, Outcome, SetShare
from asad.errors import StoreError, UsageError
from asad.experts import FEATURES
from asad.model import ShareCases
from asad.store import (
    erasure,
    exporting,
    learned,
    lending_ledger,
    quota_audit,
    schema,
    share_cases,
    statements,
    upkeep,
)
from asad.store.records import JobEnd, LedgerEntry, PlanRecord, QuotaChange, StatementChanges, StatementEntry
from asad.store.records import StatementRecord
from asad.store.store import Store

__all__ = ["opened", "url"]  # fixtures
