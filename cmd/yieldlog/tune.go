package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The heap grows by growLeast bytes before it is collected, or by growPercent of
// what lives in it if that is more. A few megabytes live in a server at rest:
// collected at their double, every other call came with a collection, and took two
// to five times as long. Some 15 MB live in a flood, which loses a fifth of its rate
// to a collector that comes after each 10.
const (
	growLeast   = 32 << 20
	growPercent = 40
)

// tuneRuntime sets what the environment does not: when garbage is collected, anew
// after every collection, and how many goroutines run at once, one more than there
// are processors. Who waits in the kernel for the client's next line keeps the place
// of one that runs for up to 10 ms, longer than most calls take.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if os.Getenv("GOGC") == "" {
		afterCollection(debug.SetGCPercent(growPercent))
	}
}

func afterCollection(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// 4 MB at 100 percent is the least heap that the runtime collects.
	wanted := max(growPercent, int(100*growLeast/max(live[0].Value.Uint64(), 4<<20)))
	if wanted > percent+percent/8 || wanted < percent-percent/8 { // setting it stops the world for a moment
		debug.SetGCPercent(wanted)
		percent = wanted
	}
	runtime.AddCleanup(new([64]byte), afterCollection, percent)
}
