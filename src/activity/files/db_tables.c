/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/db_tables.h"

const struct activity_table_spec activity_tables[TABLE_END] = {
	[TABLE_CANN_API] = {"CANN_API",
			    "startNs INTEGER,endNs INTEGER,type INTEGER,globalTid INTEGER,"
			    "connectionId INTEGER,name INTEGER",
			    6},
	[TABLE_COMMUNICATION_OP] =
		{"COMMUNICATION_OP",
		 "opName INTEGER,startNs INTEGER,endNs INTEGER,connectionId INTEGER,"
		 "groupName INTEGER,opId INTEGER,relay INTEGER,retry INTEGER,dataType INTEGER,"
		 "algType INTEGER,count NUMERIC,opType INTEGER,deviceId INTEGER",
		 13},
	[TABLE_TASK] = {"TASK",
			"startNs INTEGER,endNs INTEGER,deviceId INTEGER,connectionId INTEGER,"
			"globalTaskId INTEGER,globalPid INTEGER,taskType INTEGER,"
			"contextId INTEGER,streamId INTEGER,taskId INTEGER,modelId INTEGER",
			11},
	[TABLE_COMPUTE_TASK_INFO] =
		{"COMPUTE_TASK_INFO",
		 "name INTEGER,globalTaskId INTEGER,blockNum INTEGER,mixBlockNum INTEGER,"
		 "taskType INTEGER,opType INTEGER,inputFormats INTEGER,inputDataTypes INTEGER,"
		 "inputShapes INTEGER,outputFormats INTEGER,outputDataTypes INTEGER,"
		 "outputShapes INTEGER,attrInfo INTEGER,opState INTEGER,hf32Eligible INTEGER",
		 15},
	[TABLE_MSTX_EVENTS] = {"MSTX_EVENTS",
			       "startNs INTEGER,endNs INTEGER,eventType INTEGER,rangeId INTEGER,"
			       "category INTEGER,message INTEGER,globalTid INTEGER,"
			       "endGlobalTid INTEGER,domainId INTEGER,connectionId INTEGER",
			       10},
	[TABLE_HCCL] = {"HCCL",
			"startNs INTEGER,endNs INTEGER,deviceId INTEGER,streamId INTEGER,"
			"globalPid INTEGER,name INTEGER,groupName INTEGER,"
			"bytesPerSecond INTEGER",
			8},
	[TABLE_MEMORY_OP] = {"MEMORY_OP",
			     "startNs INTEGER,endNs INTEGER,deviceId INTEGER,streamId INTEGER,"
			     "globalPid INTEGER,connectionId INTEGER,operation INTEGER,"
			     "address INTEGER,bytes INTEGER",
			     9},
	[TABLE_MEMSET] = {"MEMSET",
			  "startNs INTEGER,endNs INTEGER,deviceId INTEGER,streamId INTEGER,"
			  "globalPid INTEGER,connectionId INTEGER,value INTEGER,bytes INTEGER,"
			  "isAsync INTEGER",
			  9},
	[TABLE_MEMCPY] = {"MEMCPY",
			  "startNs INTEGER,endNs INTEGER,deviceId INTEGER,streamId INTEGER,"
			  "globalPid INTEGER,connectionId INTEGER,copyKind INTEGER,bytes INTEGER,"
			  "isAsync INTEGER",
			  9},
	[TABLE_STRING_IDS] = {"STRING_IDS", "id INTEGER,value TEXT", 2},
};

/* MICRO and MAJOR are the wrong way round in every file of this kind; readers know them so. */
const char activity_constant_sql[] =
	"CREATE TABLE ENUM_API_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"INSERT INTO ENUM_API_TYPE VALUES(5000,'runtime'),(5500,'communication'),(10000,'node'),"
	"(15000,'model'),(20000,'acl'),(50001,'op'),(50002,'queue'),(50003,'trace'),"
	"(50004,'mstx');"
	"CREATE TABLE ENUM_HCCL_DATA_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"CREATE TABLE ENUM_MSTX_EVENT_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"INSERT INTO ENUM_MSTX_EVENT_TYPE VALUES(0,'marker'),(1,'push/pop'),(2,'start/end'),"
	"(3,'marker_ex');"
	"CREATE TABLE META_DATA(name TEXT,value TEXT);"
	"INSERT INTO META_DATA VALUES('SCHEMA_VERSION_MICRO','1'),('SCHEMA_VERSION_MINOR','2'),"
	"('SCHEMA_VERSION_MAJOR','0'),('SCHEMA_VERSION','1.2.0');";

const char activity_state_sql[] = "CREATE TABLE HOST_INFO(hostUid TEXT,hostName TEXT);"
				  "CREATE TABLE SESSION_TIME_INFO(startTimeNs INTEGER,"
				  "endTimeNs INTEGER);"
				  "CREATE TABLE NPU_INFO(id INTEGER,name TEXT);"
				  "CREATE TABLE RANK_DEVICE_MAP(rankId INTEGER,deviceId INTEGER);"
				  "CREATE TABLE ACTIVITY_LOSS(lost INTEGER,closed INTEGER);"
				  "INSERT INTO NPU_INFO VALUES(-1,'UNKNOWN');"
				  "INSERT INTO ACTIVITY_LOSS VALUES(0,0);";
