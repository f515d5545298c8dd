"""Tests of the MQTT proxy."""
