//go:build unix

package field

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A server whose terminal goes away ends as after SIGTERM: the commands get
// their time, and nothing is lost.
func TestY116_AHangupEndsTheServerInOrder(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("under nohup a hangup ends nothing")
	}
	s := start(t)
	p := s.background(`trap 'echo cleaned > "$TMP/trap"; exit' TERM; echo ready; while :; do sleep 0.05; done`)
	s.printed(p.ProcessID, "ready")
	s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	<-s.ended
	if text, err := os.ReadFile(filepath.Join(s.tmp, "trap")); string(text) != "cleaned\n" {
		t.Errorf("the command had no time to clean up: %q, %v", text, err)
	}
	s.start()
	if e := s.settlement(p.ProcessID); e.Body.Termination != "session-ended" {
		t.Errorf("it is settled as %+v", e.Body)
	}
}
