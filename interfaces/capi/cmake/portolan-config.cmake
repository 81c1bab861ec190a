# SPDX-License-Identifier: MIT OR Apache-2.0
# For find_package(portolan): a target portolan::NAME for each installed library, such as
# portolan::portolan, portolan::gamma and portolan::tmk.

get_filename_component(_portolan_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
# The libraries may be in a directory of their architecture.
find_path(_portolan_include portolan.h
  PATHS "${_portolan_lib}/../include" "${_portolan_lib}/../../include"
  NO_DEFAULT_PATH NO_CACHE)

foreach(_portolan_name portolan gamma bip gm vipl tmk)
  set(_portolan_file "${_portolan_lib}/lib${_portolan_name}.so.0")
  if(EXISTS "${_portolan_file}" AND NOT TARGET portolan::${_portolan_name})
    add_library(portolan::${_portolan_name} SHARED IMPORTED)
    set_target_properties(portolan::${_portolan_name} PROPERTIES
      IMPORTED_LOCATION "${_portolan_file}"
      IMPORTED_SONAME "lib${_portolan_name}.so.0"
      INTERFACE_INCLUDE_DIRECTORIES "${_portolan_include}")
  endif()
endforeach()

if(NOT _portolan_include OR NOT TARGET portolan::portolan)
  set(portolan_FOUND FALSE)
  set(portolan_NOT_FOUND_MESSAGE "libportolan.so.0 or portolan.h is missing beside ${_portolan_lib}")
endif()
unset(_portolan_lib)
unset(_portolan_include)
unset(_portolan_file)
