//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// says starts the program, which runs until the test ends, and waits until it
// says the text, on a terminal or on its stderr.
func says(t *testing.T, onTerminal bool, text string, args ...string) (line string, pid int) {
	t.Helper()
	c := exec.Command(binary, args...)
	c.Env = append(os.Environ(), "YIELDLOG_SYNC=relaxed")
	var said io.Reader
	var err error
	if onTerminal {
		said, err = pty.Start(c)
	} else if said, err = c.StderrPipe(); err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("%v ended with %v", args, err)
		}
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), text) {
			return lines.Text(), c.Process.Pid
		}
	}
	t.Fatalf("%v did not say %q", args, text)
	return "", 0
}

// TestServeSaysWhoHosts starts two servers of one ledger.
func TestServeSaysWhoHosts(t *testing.T) {
	dir := t.TempDir()
	_, host := says(t, false, "serving the ledger in "+dir, "--dir", dir, "serve")
	says(t, false, fmt.Sprintf("joined the ledger in %s, which process %d hosts", dir, host), "--dir", dir, "serve")
}

// TestWebSaysWhatItsLinkIs starts it on a terminal; a script tests it without.
func TestWebSaysWhatItsLinkIs(t *testing.T) {
	says(t, true, "it works once. Enter prints another, Ctrl-C ends", "--dir", t.TempDir(), "web")
}

// TestHTTPIsOnLoopback leaves the host out of the address.
func TestHTTPIsOnLoopback(t *testing.T) {
	line, _ := says(t, false, "serving ", "--dir", t.TempDir(), "mcp", "--http", ":0")
	if !strings.Contains(line, "http://127.0.0.1:") {
		t.Error(line)
	}
}

// TestHTTPClientsAreNamed has two clients come, and one leave.
func TestHTTPClientsAreNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(tokenEnv, "secret")
	line, _ := says(t, false, "serving http", "--dir", dir, "mcp", "--http", ":0")
	_, url, _ := strings.Cut(line, "serving ")
	ask := func(method, body, session string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", session)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode >= 300 {
			t.Fatalf("%s: %v, %v", method, answer, err)
		}
		_ = answer.Body.Close()
		return answer
	}
	come := func(name string) (session string) {
		return ask(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
			`"capabilities":{},"clientInfo":{"name":%q,"version":"1"}}}`, name), "").Header.Get("Mcp-Session-Id")
	}
	one := come("one")
	come("other")
	ask(http.MethodDelete, "", one)
	out := strings.Join(strings.Fields(runYieldlog(t, dir, nil, "sessions")), " ")
	if !strings.Contains(out, " one 1 closed ") || !strings.Contains(out, " other 1 open ") {
		t.Errorf("the sessions: %s", out)
	}
}

func TestReach(t *testing.T) {
	for address, want := range map[string]struct {
		url   string
		warns bool
	}{
		"127.0.0.1:7800": {"http://127.0.0.1:7800/mcp", false},
		"[::1]:7800":     {"http://[::1]:7800/mcp", false},
		"[::]:7800":      {"http://localhost:7800/mcp", true},
		"0.0.0.0:7800":   {"http://localhost:7800/mcp", true},
		"192.0.2.7:7800": {"http://192.0.2.7:7800/mcp", true},
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if url, warning := reach(a); url != want.url || (warning != "") != want.warns {
			t.Errorf("%s: %s, %q", address, url, warning)
		}
	}
}
