// Package prometheus has alerts about locks for Prometheus, in rules.yaml, and a dashboard for Grafana, in dashboard.json. Its
// tests try both with promtool, and with a real Prometheus while nodes are killed.
package prometheus
