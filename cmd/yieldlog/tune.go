package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// collectAt is when the collector starts, in percent of the living heap. The
	// heap is small but for blocks of output: a host holds less of them for it.
	collectAt = 40
	// heapFloor is how far the heap grows in any case, in bytes. A few megabytes
	// live in a server at rest: without a floor it collected after every other
	// call, and the calls beside that took two to five times as long. A flood has 15 MB
	// that live, and with a floor of 24 MB lost a fifth of its rate to the collector.
	heapFloor = 48 << 20
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
		afterCollection(debug.SetGCPercent(collectAt))
	}
}

func afterCollection(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// 4 MB at 100 percent is the least heap that the runtime collects.
	wanted := max(collectAt, int(100*heapFloor/max(live[0].Value.Uint64(), 4<<20))-100)
	if wanted > percent+percent/8 || wanted < percent-percent/8 { // setting it stops the world for a moment
		debug.SetGCPercent(wanted)
		percent = wanted
	}
	runtime.AddCleanup(new([64]byte), afterCollection, percent)
}
