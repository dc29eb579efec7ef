package producers

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedact(t *testing.T) {
	secrets := secretValues([]string{"hunter2", "hunter2-long", "abc", "abcd", "cdef", " spaced value\n", "aaaa", "hunter2", "{\n  \"key\": \"of-two\",\r\n  1234567\n}"})
	for in, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"hunter2":                      "[REDACTED]",
		"<hunter2-long>":               "<[REDACTED]>",
		"hunter2-lon":                  "[REDACTED]-lon",
		"hunter2hunter2":               "[REDACTED][REDACTED]",
		"hunter hunter2 hunter":        "hunter [REDACTED] hunter",
		"abc":                          "abc",
		"abcdef.":                      "[REDACTED].",
		"a spaced value":               "a [REDACTED]",
		strings.Repeat("a", 100) + "b": "[REDACTED]b",
		"{\n  \"key\": \"of-two\",\r\n  1234567\n}": "[REDACTED]",
		"2: \"key\": \"of-two\",\r\n3: 1234567\n}":  "2: [REDACTED]\r\n3: 1234567\n}",
	} {
		if got := newRedactor(secrets).whole(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// masked is what redaction means, without a stream and without haste.
func masked(secrets []string, text string) string {
	cover := make([]bool, len(text)+1) // cover[i]: a secret spans bytes i-1 and i
	hit := make([]bool, len(text))
	for i := range text {
		for _, s := range secrets {
			if strings.HasPrefix(text[i:], s) {
				for k := range len(s) {
					hit[i+k] = true
					cover[i+k] = cover[i+k] || k > 0
				}
			}
		}
	}
	var b strings.Builder
	for i := range len(text) {
		if !hit[i] {
			b.WriteByte(text[i])
		} else if !cover[i] {
			b.WriteString(redacted)
		}
	}
	return b.String()
}

func TestRedactorOverChunkBorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{4,9}|[abc]{4,6}|[a-z]{4,200}`)
		secrets := secretValues(rapid.SliceOfN(word, 1, 6).Draw(t, "secrets"))
		pieces := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(secrets), rapid.StringMatching(`[abc ]{0,6}`))).Draw(t, "text")
		text := strings.Join(pieces, "")
		r := newRedactor(secrets)
		var got []byte
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, min(12, len(rest))).Draw(t, "chunk")
			got = append(got, r.Write([]byte(rest[:n]))...)
			if len(r.held) >= len(secrets[0]) {
				t.Fatalf("%d bytes are held back for secrets of up to %d", len(r.held), len(secrets[0]))
			}
			rest = rest[n:]
		}
		got = append(got, r.Flush()...)
		if want := masked(secrets, text); string(got) != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

func TestRedactorHoldsBackNoMoreThanItMust(t *testing.T) {
	r := newRedactor([]string{"hunter2"})
	if got := r.Write([]byte("Password: ")); string(got) != "Password: " {
		t.Errorf("a prompt is held back: %q came", got)
	}
	if got := r.Write([]byte("hunt")); len(got) != 0 {
		t.Errorf("%q came", got)
	}
	if got := r.Write([]byte("ing")); string(got) != "hunting" {
		t.Errorf("%q came", got)
	}
}

func BenchmarkRedactor(b *testing.B) {
	line := "2026-12-01T00:00:00Z INFO server: handled request GET /api/v1/items?id=4711 in 12ms, status=200 bytes=5120\n"
	chunk := bytes.Repeat([]byte(line), 64<<10/len(line))
	for _, n := range []int{0, 1, 20} {
		for _, short := range []bool{false, true} {
			var secrets []string
			for i := range n {
				s := fmt.Sprintf("%c%c-secret-value-%d", 'a'+i, 's'-i/2, i*7919)
				if short && i == 0 {
					s = "r2d2"
				}
				secrets = append(secrets, s)
			}
			b.Run(fmt.Sprintf("secrets=%d/short=%t", n, short), func(b *testing.B) {
				r := newRedactor(secretValues(secrets))
				b.SetBytes(int64(len(chunk)))
				b.ReportAllocs()
				for b.Loop() {
					r.Write(chunk)
				}
			})
		}
	}
}
