package producers

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// A launch is what to start.
type launch struct {
	argv  []string
	dir   string
	env   []string
	token string // the execution's id, which its environment carries
	tty   *events.Size
}

// A process is a shell that was started, with its ends of the pipes. Its pid,
// and so its group's number, is not given to anybody else before release.
type process struct {
	native
	pid     int
	start   uint64 // kernel start time
	token   string
	stdin   *os.File
	streams []stream

	mu       sync.Mutex
	reaped   bool
	status   syscall.WaitStatus
	signaled map[kinsman]bool // descendants that took a signal
}

// A kinsman names one process for as long as the machine is up: pids come
// again, but not with the same start time.
type kinsman struct {
	pid   int
	start uint64
	name  string
}
