// Package examples holds programs in several languages that follow a ledger
// with nothing but a NATS client, and the tests that run them against a real
// ledger. A test whose tools are not installed is skipped and says which.
package examples
