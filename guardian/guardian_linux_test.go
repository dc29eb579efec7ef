package guardian

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMain is also the server and the commands of these tests: with "mcp" as
// its argument the program is guarded, as yieldlog is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "mcp":
			fakeServer(os.Args[2])
		case "sleeper":
			sleeper(os.Args[2])
		}
	}
	os.Exit(m.Run())
}

// fakeServer runs each line of its input as a command in a session of its own.
// It notes in dir what it is and what happens to it.
func fakeServer(dir string) {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)
	go func() {
		select {
		case <-Lost():
			note(dir, "lost")
			os.Exit(9)
		case <-terms:
			note(dir, "terminated")
			os.Exit(7)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	note(dir, "server")
	fmt.Fprintf(os.Stdout, "marked %t guarded %t\n", os.Getenv(Var) != "", os.Getenv(serverVar) != "")
	for lines.Scan() {
		c := exec.Command("/bin/sh", "-c", lines.Text())
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			panic(err)
		}
		go func() { _ = c.Wait() }()
	}
	os.Exit(0)
}

// sleeper is a command that is hard to end: it ignores every signal that it
// can, and has a name that looks like a line of the process table.
func sleeper(file string) {
	signal.Ignore(unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
	name := []byte("a) Z 1 (b\x00")
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		panic(err)
	}
	note(filepath.Dir(file), filepath.Base(file))
	for { // an empty select would be a deadlock, and end it
		time.Sleep(time.Hour)
	}
}

// note writes the process's number into a file, at once and whole.
func note(dir, name string) {
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		panic(err)
	}
}

// A client is what starts the guardian, and what it sees.
type client struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	in    *os.File
	out   *bufio.Reader
	ended bool
}

func connect(t *testing.T) *client {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, dir: t.TempDir(), cmd: exec.Command(exe, "mcp")}
	c.cmd.Args = append(c.cmd.Args, c.dir)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = os.Stderr
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stdin, c.cmd.Stdout, c.in, c.out = inR, outW, inW, bufio.NewReader(outR)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = inR.Close(), outW.Close()
	t.Cleanup(func() {
		if !c.ended {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
		_, _ = inW.Close(), outR.Close()
	})
	if line, err := c.out.ReadString('\n'); err != nil || line != "marked true guarded false\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return c
}

// run has the server run a line.
func (c *client) run(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// wait is the guardian's exit status.
func (c *client) wait() int {
	c.t.Helper()
	c.ended = true
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// noted is the process that left a note.
func (c *client) noted(name string) process {
	c.t.Helper()
	var p process
	eventually(c.t, name+" notes its number", func() bool {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return false
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			c.t.Fatal(err)
		}
		p, _ = inspect(pid)
		p.pid = pid
		return true
	})
	return p
}

func alive(p process) bool {
	now, ok := inspect(p.pid)
	return ok && !now.over && now.start == p.start
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}

// spread has the server start processes that leave it by every known way.
func (c *client) spread() []process {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	ways := map[string]string{
		"plain":       "exec %s sleeper %s",
		"session":     "setsid %s sleeper %s; :",
		"orphan":      "(%s sleeper %s &)",
		"double-fork": "(setsid sh -c '(%s sleeper %s &)' &)",
		"cleared":     "env -i %s sleeper %s; :",
		"everything":  "(env -i setsid sh -c '(env -i setsid %s sleeper %s &)' &)",
	}
	var list []process
	for name, way := range ways {
		c.run(way, exe, filepath.Join(c.dir, name))
	}
	for name := range ways {
		p := c.noted(name)
		if !alive(p) {
			c.t.Fatalf("%s does not live", name)
		}
		list = append(list, p)
	}
	return list
}

// stranger is a process that has nothing to do with the guardian, but for the
// process group, the program, and a mark that is nearly the same.
func stranger(t *testing.T, group int) process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(exe, "sleeper", filepath.Join(dir, "stranger"))
	cmd.Env = append(os.Environ(), Var+"="+markOf(group)+"0", "X"+Var+"="+markOf(group))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return (&client{t: t, dir: dir}).noted("stranger")
}

func TestServerKilled(t *testing.T) {
	c := connect(t)
	other := stranger(t, c.cmd.Process.Pid)
	server := c.noted("server")
	list := c.spread()
	if err := unix.Kill(server.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := c.wait(); status != 128+9 {
		t.Errorf("exit status %d", status)
	}
	for _, p := range append(list, server) {
		if alive(p) {
			t.Errorf("process %d outlived the server and its guardian", p.pid)
		}
	}
	if !alive(other) {
		t.Error("a stranger was killed")
	}
}

// TestWhoMovesOnIsCaught has each of some servers run what is another process every
// few milliseconds: one look at the process table finds it, or does not.
func TestWhoMovesOnIsCaught(t *testing.T) {
	list := make([]*client, 12)
	hopped := func(c *client) bool {
		_, err := os.Stat(filepath.Join(c.dir, "hopped"))
		return err == nil
	}
	for i := range list {
		list[i] = connect(t)
		list[i].run("cd %s; hop() { : >hopped; sleep 0.002; hop & exit; }; hop & exit", list[i].dir)
	}
	for _, c := range list {
		eventually(t, "it hops", func() bool { return hopped(c) })
		if err := unix.Kill(c.noted("server").pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.wait()
		if err := os.Remove(filepath.Join(c.dir, "hopped")); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // enough for a fault to show
	for _, c := range list {
		if hopped(c) {
			t.Error("it goes on")
		}
	}
}

func TestServerExits(t *testing.T) {
	c := connect(t)
	list := c.spread()
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	if status := c.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, p := range list {
		if alive(p) {
			t.Errorf("process %d outlived the server", p.pid)
		}
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	c := connect(t)
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := c.wait(); status != 7 {
		t.Errorf("exit status %d, want the server's", status)
	}
	c.noted("terminated")
}

func TestGuardianAndItsGroupKilled(t *testing.T) {
	c := connect(t)
	server := c.noted("server")
	if err := unix.Kill(-c.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.wait()
	c.noted("lost")
	eventually(t, "the server ends", func() bool { return !alive(server) })
}

func TestCarriersAreFound(t *testing.T) {
	mark := "test-" + markOf(os.Getpid())
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "sleeper", filepath.Join(dir, "carrier"))
	cmd.Env = append(os.Environ(), Var+"="+mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := (&client{t: t, dir: dir}).noted("carrier")
	if !carries(p.pid, mark) || carries(p.pid, mark+"0") || carries(p.pid, strings.TrimSuffix(mark, mark[len(mark)-1:])) {
		t.Error("the mark is not compared whole")
	}
	early := p
	early.start-- // the same number, another process
	w := ward{mark: mark}
	w.kill(early)
	if !alive(p) {
		t.Fatal("a process was killed under another's identity")
	}
	w.kill(p)
	if err := cmd.Wait(); err == nil {
		t.Error("it lived on")
	}
}

func TestElderSiblingsAreSpared(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &client{t: t, dir: dir}
	script := fmt.Sprintf("%s sleeper %s/elder & while [ ! -e %s/elder ]; do sleep 0.01; done; exec %s mcp %s", exe, dir, dir, exe, dir)
	c.cmd = exec.Command("/bin/sh", "-c", script)
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	elder := c.noted("elder")
	t.Cleanup(func() {
		if alive(elder) {
			_ = unix.Kill(elder.pid, unix.SIGKILL)
		}
	})
	if _, err := fmt.Fprintf(in, "%s sleeper %s/younger\n", exe, dir); err != nil {
		t.Fatal(err)
	}
	younger := c.noted("younger")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if status := c.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if alive(younger) || !alive(elder) {
		t.Errorf("the server's command lives: %t, the older process lives: %t", alive(younger), alive(elder))
	}
}

func TestWanted(t *testing.T) {
	for line, want := range map[string]bool{
		"yieldlog": false, "yieldlog mcp": true, "yieldlog mcp --http :0": true, "yieldlog exec mcp": false,
		"yieldlog --dir mcp ps": false, "yieldlog --dir d mcp": true, "yieldlog --dir=d --json mcp": true, "yieldlog - mcp": false,
	} {
		if got := wanted(strings.Fields(line)); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}
