package ledger

import (
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// writeCacheFor is how long a host keeps the newest block of output in memory
	// after it was written.
	writeCacheFor = 250 * time.Millisecond
	// segmentBlock is the size of a segment's blocks, in bytes: what is kept of a
	// flood, and what is read again for a message, comes in blocks.
	segmentBlock = 1 << 20
)

// shortenWriteCache makes the server give the blocks of a segment back soon
// after they were written, and makes them small. By itself it keeps 8 MB each for
// ten seconds, in case of reads: a flood then holds all that it wrote in that time,
// hundreds of megabytes. No option says so, hence this reach into the server, held
// by a test; where a field is not what it was, nothing is changed and the error
// says which. See docs/decisions/0011-write-cache.md.
func shortenWriteCache(acc *server.Account, stream string) error {
	fs, err := fileStore(acc, stream)
	if err != nil {
		return err
	}
	mu, err := lockOf(fs)
	if err != nil {
		return err
	}
	cfg := fs.FieldByName("fcfg")
	if cfg.Kind() != reflect.Struct {
		return fmt.Errorf("the server's %s has no settings", fs.Type())
	}
	expire, err := field[time.Duration](cfg, "CacheExpire")
	if err != nil {
		return err
	}
	size, err := field[uint64](cfg, "BlockSize")
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	*expire, *size = writeCacheFor, segmentBlock
	return nil
}

// fileStore is the server's store of a stream.
func fileStore(acc *server.Account, stream string) (reflect.Value, error) {
	js, err := pointee(reflect.ValueOf(acc).Elem(), "js")
	if err != nil {
		return reflect.Value{}, err
	}
	mu, err := lockOf(js)
	if err != nil {
		return reflect.Value{}, err
	}
	mu.RLock()
	defer mu.RUnlock()
	streams := js.FieldByName("streams")
	if streams.Kind() != reflect.Map {
		return reflect.Value{}, fmt.Errorf("the server's %s has no streams", js.Type())
	}
	s := streams.MapIndex(reflect.ValueOf(stream))
	if s.Kind() != reflect.Pointer || s.IsNil() {
		return reflect.Value{}, fmt.Errorf("the server has no stream %s", stream)
	}
	return pointee(s.Elem(), "store")
}

// dropFull makes the server give back the blocks of a segment that are full, and
// returns how many it held. To tell of a message it looks up the one before, and
// takes that for a reader of the block: by itself it keeps each for as long as its
// timer and its clock take, a third to half a second of a flood.
func dropFull(acc *server.Account, stream string) (held int, err error) {
	fs, err := fileStore(acc, stream)
	if err != nil {
		return 0, err
	}
	mu, err := lockOf(fs)
	if err != nil {
		return 0, err
	}
	mu.RLock()
	defer mu.RUnlock()
	blocks := fs.FieldByName("blks")
	if blocks.Kind() != reflect.Slice || blocks.Type().Elem().Kind() != reflect.Pointer {
		return 0, fmt.Errorf("the server's %s has no blocks", fs.Type())
	}
	for i := blocks.Len() - 2; i >= 0; i-- { // the last one takes messages
		is, err := expire(blocks.Index(i).Elem())
		if err != nil {
			return held, err
		}
		if !is {
			break // what comes before it was given back before
		}
		held++
	}
	return held, nil
}

// expire has the timer of a block find at once that nobody used it, if the block is
// in memory.
func expire(block reflect.Value) (held bool, err error) {
	mu, err := lockOf(block)
	if err != nil {
		return false, err
	}
	cache := block.FieldByName("cache")
	if cache.Kind() != reflect.Pointer {
		return false, fmt.Errorf("the server's %s has no cache", block.Type())
	}
	timer, err := field[*time.Timer](block, "ctmr")
	if err != nil {
		return false, err
	}
	read, err := field[int64](block, "llts")
	if err != nil {
		return false, err
	}
	written, err := field[int64](block, "lwts")
	if err != nil {
		return false, err
	}
	mu.Lock()
	defer mu.Unlock()
	if cache.IsNil() || *timer == nil {
		return false, nil
	}
	*read, *written = 0, 0
	(*timer).Reset(0)
	return true, nil
}

// field is a field of a struct of the server, to be changed under its lock.
func field[T any](v reflect.Value, name string) (*T, error) {
	f := v.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil, fmt.Errorf("the server's %s has no %s", v.Type(), name)
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}

// pointee is the struct that a pointer, or an interface with a pointer in it,
// refers to.
func pointee(v reflect.Value, name string) (reflect.Value, error) {
	f := v.FieldByName(name)
	if f.Kind() == reflect.Interface {
		f = f.Elem()
	}
	if f.Kind() != reflect.Pointer || f.IsNil() || f.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("the server's %s has no %s", v.Type(), name)
	}
	return f.Elem(), nil
}

func lockOf(v reflect.Value) (*sync.RWMutex, error) { return field[sync.RWMutex](v, "mu") }
