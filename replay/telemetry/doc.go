// Package telemetry tells monitoring systems what the ledger says: [Metrics]
// for Prometheus and [Tracer] for OpenTelemetry. Both are folds. Nothing here is
// on the way of a command: a monitoring system that hangs holds nothing up.
//
// A [Tracer] owns the goroutines of its span processor until it is closed.
package telemetry
