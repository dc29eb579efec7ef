// Package producers holds the only writers of the ledger: sessions and the
// executions that they own, from the request through policy, lane, spawn,
// output and yield to the one settlement.
package producers
