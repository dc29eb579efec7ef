// Package chromium drives a real headless Chromium over its debugging pipe, for
// the tests of the page and for the pictures of it. It speaks the few words of
// the DevTools protocol that these need, so it has no dependency.
package chromium

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// ErrMissing says that no browser is installed.
var ErrMissing = errors.New("no Chromium is installed (apt-get install chromium)")

// names are what Chromium is called.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell"}

// Find is the path of the browser, or [ErrMissing].
func Find() (string, error) {
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", ErrMissing
}

// Browser is one running browser with one page. Its methods are safe for
// concurrent use. One goroutine reads its answers and ends with it.
type Browser struct {
	cmd     *exec.Cmd
	in      *os.File
	profile string
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	seen    []Entry
	closed  bool
}

// Entry is what the page said in its console, or what the browser held against
// it, such as a violation of the content security policy.
type Entry struct{ Kind, Text string }

// message is one word of the protocol, in either direction.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser, which ends with ctx or with [Browser.Close].
func Start(ctx context.Context) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, fmt.Errorf("starting Chromium: %w", err)
	}
	b := &Browser{profile: profile, waiting: map[int]chan message{}}
	if err := b.start(ctx, path); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", path, err), os.RemoveAll(profile))
	}
	if err := b.attach(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Browser) start(ctx context.Context, path string) error {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirIn.Close(), ourOut.Close())
	}
	// No sandbox: containers have none to give, and it sees only our own pages.
	b.cmd = exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
		"--font-render-hinting=none", "--remote-debugging-pipe", "--user-data-dir="+b.profile, "about:blank")
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	err = b.cmd.Start()
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	b.in = ourOut
	if err != nil {
		return errors.Join(err, ourIn.Close(), ourOut.Close())
	}
	go b.read(ourIn)
	return nil
}

// read hands answers to who waits for them, until the browser ends.
func (b *Browser) read(from io.ReadCloser) {
	defer from.Close()
	r := bufio.NewReader(from)
	for {
		word, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m message
		if json.Unmarshal(word[:len(word)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; c != nil {
			delete(b.waiting, m.ID)
			c <- m
		} else if m.Method != "" {
			b.note(m)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for id, c := range b.waiting {
		delete(b.waiting, id)
		close(c)
	}
}

// note keeps what the page said. The lock is held.
func (b *Browser) note(m message) {
	var p struct {
		Entry struct{ Source, Level, Text string }
		Type  string
		Args  []struct{ Value, Description any }
		// ExceptionDetails is what was thrown and not caught.
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	switch m.Method {
	case "Log.entryAdded":
		b.seen = append(b.seen, Entry{p.Entry.Level, p.Entry.Source + ": " + p.Entry.Text})
	case "Runtime.consoleAPICalled":
		b.seen = append(b.seen, Entry{p.Type, fmt.Sprint(p.Args)})
	case "Runtime.exceptionThrown":
		b.seen = append(b.seen, Entry{"error", p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description})
	}
}

// attach takes the one page.
func (b *Browser) attach(ctx context.Context) error {
	var target struct{ TargetID string }
	if err := b.Call(ctx, "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var s struct{ SessionID string }
	if err := b.Call(ctx, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &s); err != nil {
		return err
	}
	b.session = s.SessionID
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable"} {
		if err := b.Call(ctx, domain, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Call says one word of the protocol and reads the answer into result.
func (b *Browser) Call(ctx context.Context, method string, params, result any) error {
	m := message{Method: method, Session: b.session}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("asking Chromium for %s: %w", method, err)
		}
		m.Params = raw
	}
	answer, err := b.say(ctx, m)
	if err != nil {
		return fmt.Errorf("asking Chromium for %s: %w", method, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("asking Chromium for %s: %s", method, answer.Error.Message)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("reading Chromium's answer to %s: %w", method, err)
	}
	return nil
}

var errGone = errors.New("the browser has ended")

func (b *Browser) say(ctx context.Context, m message) (message, error) {
	c := make(chan message, 1)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return message{}, errGone
	}
	b.next++
	m.ID = b.next
	b.waiting[m.ID] = c
	raw, err := json.Marshal(m)
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return message{}, err
	}
	select {
	case answer, ok := <-c:
		if !ok {
			return message{}, errGone
		}
		return answer, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

// Close ends the browser and removes its profile.
func (b *Browser) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	_ = b.Call(ctx, "Browser.close", nil, nil) // it may be gone already
	_ = b.in.Close()
	ended := make(chan struct{})
	go func() { // ends with the browser
		_ = b.cmd.Wait() // how it ended is no matter
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = b.cmd.Process.Kill()
		<-ended
	}
	// Its helpers end a little later, and write until then.
	for os.RemoveAll(b.profile) != nil && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// closePatience is how long the browser may take to end.
const closePatience = 10 * time.Second

// Said is what the page said since the last call.
func (b *Browser) Said() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	b.seen = nil
	return seen
}

// Open goes to an address, and returns once the document is complete.
func (b *Browser) Open(ctx context.Context, addr string) error {
	var nav struct{ ErrorText string }
	if err := b.Call(ctx, "Page.navigate", map[string]any{"url": addr}, &nav); err != nil {
		return err
	}
	if nav.ErrorText != "" {
		return fmt.Errorf("opening %s: %s", addr, nav.ErrorText)
	}
	return b.Until(ctx, `document.readyState === "complete"`)
}

// Eval evaluates an expression in the page, awaits it, and reads its value into
// result, which may be nil.
func (b *Browser) Eval(ctx context.Context, expression string, result any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	params := map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}
	if err := b.Call(ctx, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if d := r.ExceptionDetails; d != nil {
		return fmt.Errorf("evaluating %.80q: %s %s", expression, d.Text, d.Exception.Description)
	}
	if result == nil || len(r.Result.Value) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Result.Value, result); err != nil {
		return fmt.Errorf("evaluating %.80q: %w", expression, err)
	}
	return nil
}

// Until returns once an expression is true in the page, which it looks at
// before every frame, across navigations.
func (b *Browser) Until(ctx context.Context, expression string) error {
	wait := `new Promise(done => { const look = () => { let yes = false; try { yes = Boolean(` + expression + `) } catch {} ` +
		`if (yes) done(true); else setTimeout(look, 15) }; look() })`
	for {
		var yes bool
		err := b.Eval(ctx, wait, &yes)
		if err == nil && yes {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w", expression, ctx.Err())
		}
		if errors.Is(err, errGone) {
			return err
		}
		// The page went elsewhere meanwhile: look there.
	}
}

// Press presses a key, as a person does.
func (b *Browser) Press(ctx context.Context, key string) error {
	params := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		params["text"] = key
	}
	if key == "Enter" {
		params["text"], params["windowsVirtualKeyCode"] = "\r", 13
	}
	if err := b.Call(ctx, "Input.dispatchKeyEvent", params, nil); err != nil {
		return err
	}
	return b.Call(ctx, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// Look is how the page is looked at.
type Look struct {
	Width, Height int
	Scale         float64
	Dark          bool
	Print         bool
}

// Set looks at the page so from now on.
func (b *Browser) Set(ctx context.Context, l Look) error {
	scheme, media := "light", "screen"
	if l.Dark {
		scheme = "dark"
	}
	if l.Print {
		media = "print"
	}
	if err := b.Call(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": l.Width, "height": l.Height, "deviceScaleFactor": max(l.Scale, 1), "mobile": false,
	}, nil); err != nil {
		return err
	}
	return b.Call(ctx, "Emulation.setEmulatedMedia", map[string]any{
		"media": media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}},
	}, nil)
}

// Picture is what is seen, as a PNG.
func (b *Browser) Picture(ctx context.Context) ([]byte, error) {
	var shot struct{ Data string }
	if err := b.Call(ctx, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot); err != nil {
		return nil, err
	}
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the picture: %w", err)
	}
	return png, nil
}
