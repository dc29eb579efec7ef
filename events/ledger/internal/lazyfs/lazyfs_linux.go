// Package lazyfs is a file system for tests that knows what has been synced: it
// passes everything through to a directory, and [FS.Image] builds the tree that
// a power cut would have left. Linux only, through FUSE.
package lazyfs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const page = 4096

// A span is bytes of a file, [from, to).
type span struct{ from, to int64 }

// Model says what a power cut leaves beside what was synced.
type Model struct {
	// Strict makes a name durable only when its directory is synced. Otherwise
	// any sync makes all names durable, as ext4 does.
	Strict bool
	// Torn lets a random half of the pages that were not synced survive too.
	Torn bool
}

// FS is a mounted file system. Its methods are safe for concurrent use.
type FS struct {
	model        Model
	live, shadow string
	server       *fuse.Server

	mu     sync.Mutex
	cut    bool
	unsafe map[uint64][]span // what was written and not synced, by inode
	names  map[string]uint64 // the durable names of files
	dirty  bool              // names changed since the last sync
	gone   []*os.File        // open, so that their inodes are not used again
	err    error             // the first thing that went wrong with the shadow
}

// Mount mounts at mnt what is in live. shadow takes what is durable. All three
// are directories; live must be empty.
func Mount(live, shadow, mnt string, model Model) (*FS, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(live, &st); err != nil {
		return nil, fmt.Errorf("mounting: %w", err)
	}
	l := &FS{model: model, live: live, shadow: shadow, unsafe: map[uint64][]span{}, names: map[string]uint64{}}
	root := &fs.LoopbackRoot{Path: live, Dev: st.Dev}
	top := &node{LoopbackNode: fs.LoopbackNode{RootData: root}, l: l}
	root.RootNode = top
	server, err := fs.Mount(mnt, top, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "lazyfs", Name: "lazyfs", MaxWrite: 1 << 20}})
	if err != nil {
		return nil, fmt.Errorf("mounting: %w", err)
	}
	l.server = server
	return l, nil
}

// Cut is the power cut: nothing becomes durable any more.
func (l *FS) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
}

// Close unmounts the file system. Nobody may have it open.
func (l *FS) Close() error {
	err := l.server.Unmount()
	for _, f := range l.gone {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Image writes what the power cut left into a directory.
func (l *FS) Image(out string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.model.Torn {
		l.tear()
	}
	if l.err != nil {
		return l.err
	}
	err := filepath.WalkDir(l.live, func(p string, e iofs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return os.MkdirAll(filepath.Join(out, l.rel(p)), 0o700) // making a directory is not modelled
	})
	if err != nil {
		return err
	}
	for name, inode := range l.names {
		b, err := os.ReadFile(l.durable(inode))
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		to := filepath.Join(out, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// tear keeps a random half of the pages that were not synced.
func (l *FS) tear() {
	for _, inode := range l.files("") {
		if len(l.unsafe[inode]) == 0 {
			continue
		}
		for name, i := range l.files("") {
			if i != inode {
				continue
			}
			f, err := os.Open(filepath.Join(l.live, name))
			l.note(err)
			if err == nil {
				l.copy(inode, f, func() bool { return rand.IntN(2) == 0 })
				l.note(f.Close())
			}
			break
		}
	}
}

func (l *FS) durable(inode uint64) string {
	return filepath.Join(l.shadow, strconv.FormatUint(inode, 10))
}

func (l *FS) rel(path string) string {
	r, err := filepath.Rel(l.live, path)
	if err != nil {
		panic(err) // the path is below live
	}
	return r
}

func (l *FS) note(err error) {
	if l.err == nil {
		l.err = err
	}
}

// files is the names of the files below a directory, with their inodes.
func (l *FS) files(dir string) map[string]uint64 {
	m := map[string]uint64{}
	_ = filepath.WalkDir(filepath.Join(l.live, dir), func(p string, e iofs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if i, ok := inode(p); ok {
				m[l.rel(p)] = i
			}
		}
		return nil // it was removed meanwhile
	})
	return m
}

func inode(path string) (uint64, bool) {
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	return st.Ino, err == nil
}

// copy makes pages of a file durable: all that were written, or those picked.
func (l *FS) copy(inode uint64, src *os.File, pick func() bool) {
	dst, err := os.OpenFile(l.durable(inode), os.O_CREATE|os.O_RDWR, 0o600)
	l.note(err)
	if err != nil {
		return
	}
	defer func() { l.note(dst.Close()) }()
	for _, s := range l.unsafe[inode] {
		for at := s.from; at < s.to; {
			end := s.to
			if pick != nil {
				end = min(end, (at/page+1)*page)
			}
			if pick == nil || pick() {
				b := make([]byte, end-at)
				n, _ := src.ReadAt(b, at) // shorter, if the file was cut meanwhile
				_, err := dst.WriteAt(b[:n], at)
				l.note(err)
			}
			at = end
		}
	}
	if st, err := src.Stat(); err == nil && pick == nil {
		l.note(dst.Truncate(st.Size()))
	}
}

func (l *FS) wrote(inode uint64, from, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.unsafe[inode]
	if k := len(all); k > 0 && all[k-1].to == from {
		all[k-1].to += n
		return
	}
	l.unsafe[inode] = append(all, span{from, from + n})
}

func (l *FS) sync(inode uint64, src *os.File) syscall.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return syscall.EIO
	}
	l.copy(inode, src, nil)
	delete(l.unsafe, inode)
	if !l.model.Strict && l.dirty {
		l.names, l.dirty = l.files(""), false
	}
	return 0
}

func (l *FS) syncDir(dir string) syscall.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return syscall.EIO
	}
	if !l.model.Strict {
		l.names, l.dirty = l.files(""), false
		return 0
	}
	inDir := func(name string, _ uint64) bool { return filepath.Dir(name) == dir }
	maps.DeleteFunc(l.names, inDir)
	for name, i := range l.files(dir) {
		if inDir(name, i) {
			l.names[name] = i
		}
	}
	return 0
}

// changing notes that names change, and keeps a file that loses its name.
func (l *FS) changing(lost string) {
	f, err := os.Open(lost)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = true
	if err == nil {
		l.gone = append(l.gone, f)
	}
}

type node struct {
	fs.LoopbackNode
	l *FS
}

func (n *node) path() string { return filepath.Join(n.l.live, n.Path(n.Root())) }

// WrapChild makes the children of a node nodes of this file system.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	child, ok := ops.(*fs.LoopbackNode)
	if !ok {
		return ops
	}
	return &node{LoopbackNode: fs.LoopbackNode{RootData: child.RootData}, l: n.l}
}

// Open opens a file, whose synced writes are synced here.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, ff, e := n.LoopbackNode.Open(ctx, flags&^uint32(syscall.O_SYNC))
	if e == 0 {
		fh = n.handle(fh, n.path(), flags)
	}
	return fh, ff, e
}

// Create creates a file.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	in, fh, ff, e := n.LoopbackNode.Create(ctx, name, flags&^uint32(syscall.O_SYNC), mode, out)
	if e == 0 {
		n.l.changing("")
		fh = n.handle(fh, filepath.Join(n.path(), name), flags)
	}
	return in, fh, ff, e
}

// Unlink removes a name.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	n.l.changing(filepath.Join(n.path(), name))
	return n.LoopbackNode.Unlink(ctx, name)
}

// Link makes a second name.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.l.changing("")
	return n.LoopbackNode.Link(ctx, target, name, out)
}

// Rename moves a name.
func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string, _ uint32) syscall.Errno {
	to, ok := parent.(*node)
	if !ok {
		return syscall.EXDEV
	}
	target := filepath.Join(to.path(), newName)
	n.l.changing(target)
	return fs.ToErrno(syscall.Rename(filepath.Join(n.path(), name), target))
}

// OpendirHandle opens a directory, which can be synced.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, ff, e := n.LoopbackNode.OpendirHandle(ctx, flags)
	if e != 0 {
		return nil, 0, e
	}
	return &dir{fh, n}, ff, 0
}

func (n *node) handle(fh fs.FileHandle, path string, flags uint32) fs.FileHandle {
	lf, ok := fh.(*fs.LoopbackFile)
	if !ok {
		return fh
	}
	f, err := os.Open(path)
	if err != nil {
		return fh
	}
	i, _ := inode(path)
	if flags&syscall.O_TRUNC != 0 {
		n.l.mu.Lock()
		delete(n.l.unsafe, i)
		n.l.mu.Unlock()
	}
	return &file{LoopbackFile: lf, l: n.l, src: f, inode: i, synced: flags&syscall.O_SYNC == syscall.O_SYNC}
}

type file struct {
	*fs.LoopbackFile
	l      *FS
	src    *os.File
	inode  uint64
	synced bool
}

// PassthroughFd keeps the kernel from writing past this file system.
func (f *file) PassthroughFd() (int, bool) { return -1, false }

// Write writes, and syncs when the file was opened for that.
func (f *file) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n, e := f.LoopbackFile.Write(ctx, data, off)
	if n > 0 {
		f.l.wrote(f.inode, off, int64(n))
		if f.synced {
			if e := f.l.sync(f.inode, f.src); e != 0 {
				return 0, e
			}
		}
	}
	return n, e
}

// Fsync makes the file durable.
func (f *file) Fsync(context.Context, uint32) syscall.Errno { return f.l.sync(f.inode, f.src) }

// Release closes the file.
func (f *file) Release(ctx context.Context) syscall.Errno {
	_ = f.src.Close() // opened for reading
	return f.LoopbackFile.Release(ctx)
}

type dir struct {
	fs.FileHandle
	n *node
}

// Fsyncdir makes the names in the directory durable.
func (d *dir) Fsyncdir(context.Context, uint32) syscall.Errno {
	return d.n.l.syncDir(d.n.l.rel(d.n.path()))
}

// Readdirent reads the next entry.
func (d *dir) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	return d.FileHandle.(fs.FileReaddirenter).Readdirent(ctx)
}

// Seekdir moves to an entry.
func (d *dir) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	return d.FileHandle.(fs.FileSeekdirer).Seekdir(ctx, off)
}

// Releasedir closes the directory.
func (d *dir) Releasedir(ctx context.Context, flags uint32) {
	d.FileHandle.(fs.FileReleasedirer).Releasedir(ctx, flags)
}
