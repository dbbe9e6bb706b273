"""Tests of tokcache."""
