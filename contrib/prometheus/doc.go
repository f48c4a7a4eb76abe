// Package prometheus has rules.yaml, alerts about locks for Prometheus, and dashboard.json for Grafana. Its tests try both
// with promtool and a real Prometheus, which watches nodes that are killed.
package prometheus
