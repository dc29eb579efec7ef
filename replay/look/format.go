package look

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a duration for people, two units at most: 0.4s, 12s, 3m 05s, 2h 10m, 4d 2h.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Bytes is a size for people: 0 B, 999 B, 1.2 kB, 3.4 MB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n)/1000, "kB"
	for _, next := range []string{"MB", "GB", "TB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, next
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
}

// shortLength is how many characters of an id tell it from its neighbours: the
// last ones, which are random; the first ones are the clock.
const shortLength = 8

// Short is the end of an id, enough for people.
func Short(id string) string {
	if len(id) <= shortLength {
		return id
	}
	return id[len(id)-shortLength:]
}

// Count is a number with its noun: 1 command, 2 commands, 2 matches.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
