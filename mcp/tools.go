package mcp

// allTools are the tools.
func (s *Server) allTools() []*tool {
	return []*tool{
		s.execTool(), s.readTool(), s.writeTool(), s.waitTool(),
		s.stopTool(), s.psTool(), s.cleanupTool(),
	}
}
